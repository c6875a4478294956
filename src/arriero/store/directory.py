"""The directory of the history and of the files that belong to it."""

from __future__ import annotations

import os
from pathlib import Path

from arriero.base import limits


def default_directory() -> Path:
    """``ARRIERO_HOME``, or the system's directory for user data."""
    chosen = os.environ.get("ARRIERO_HOME")
    if chosen:
        return limits.expanded(chosen).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("arriero", appauthor=False))
