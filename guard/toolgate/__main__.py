"""``python -m toolgate`` is the command ``toolgate``."""

from toolgate.cli import main

if __name__ == "__main__":
    main()
