"""What ``python -I -S -B .../oracle_child REQUEST`` runs: the package under its own short name."""

import sys
from importlib import import_module
from os.path import split  # pathlib would take longer to import than this program

if __name__ == "__main__":
    # Python put this folder first. Its parent goes last, so that no file hides a standard module.
    parent, package = split(sys.path.pop(0))
    sys.path.append(parent)
    import_module(f"{package}.protocol").main()
