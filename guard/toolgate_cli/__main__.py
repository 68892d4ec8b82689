"""Run the command line with ``python -m toolgate_cli``."""

from toolgate_cli import main

if __name__ == "__main__":
    main()
