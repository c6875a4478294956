from .directory import default_directory as default_directory
from .store import Store as Store
from .store import new_id as new_id
