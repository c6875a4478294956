"""Write the table of settings in ``docs/serve.md``: ``python scripts/serve_page.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from arriero.serve.settings import TABLE, Setting

PAGE: Final = Path(__file__).parent.parent / "docs" / "serve.md"
BEGIN: Final = "<!-- settings: made by scripts/serve_page.py -->\n"
END: Final = "<!-- settings end -->\n"


def table() -> str:
    """The settings, one a row."""
    rows = ["| option | variable | default | what it does |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(_row, TABLE)]) + "\n"


def page() -> str:
    """The page with its table as the settings are now."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def _row(setting: Setting) -> str:
    value = f" `{setting.metavar}`" if setting.metavar else ""
    value = value.replace("|", r"\|")
    default = f"`{setting.default}`" if setting.default else ""
    more = (" *" if setting.live else "") + (" (several)" if setting.many else "")
    return f"| `{setting.option}`{value}{more} | `{setting.env}` | {default} | {setting.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
