"""The local history: every record of this machine, in SQLite."""

from typing import TYPE_CHECKING

from arriero.base.late import late
from arriero.store.directory import default_directory

if TYPE_CHECKING:
    from arriero.store.store import Store, new_id
else:
    __getattr__ = late(__name__, store="Store new_id")

__all__ = ["Store", "default_directory", "new_id"]
