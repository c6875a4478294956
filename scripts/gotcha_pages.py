"""Write the pages about gotchas: ``python scripts/gotcha_pages.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

from arriero.jobs.gotchas import shipped_entries
from arriero.report.markdown.gotchas import pages


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    written = pages(shipped_entries())
    for stale in {path.name for path in directory.glob("*.md")} - set(written):
        (directory / stale).unlink()
    for name, text in written.items():
        (directory / name).write_text(text, encoding="utf-8")
    print(f"{len(written)} pages in {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
