"""Where the history and what goes with it are kept."""

from __future__ import annotations

import os
from pathlib import Path

from arriero.base import limits


def default_directory() -> Path:
    """``ARRIERO_HOME``, or where this system keeps a user's data."""
    chosen = os.environ.get("ARRIERO_HOME")
    if chosen:
        return limits.expanded(chosen).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("arriero", appauthor=False))
