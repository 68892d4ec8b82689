"""Run the command line with ``python -m toolgate``."""

import runpy

if __name__ == "__main__":
    # By name, because the SDK does not import the command line.
    runpy.run_module("toolgate_cli", run_name="__main__")
