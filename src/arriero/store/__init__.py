"""The local history: every record of this machine, in SQLite."""

from arriero.store.store import Store, default_directory, new_id

__all__ = ["Store", "default_directory", "new_id"]
