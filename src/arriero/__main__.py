"""``python -m arriero``."""

from arriero.cli import main

if __name__ == "__main__":
    main()
