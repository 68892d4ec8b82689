"""Run the command line with ``python -m toolgate``."""

import runpy

if __name__ == "__main__":
    # An import statement would make the SDK depend on the command line, so the module is run by its name.
    runpy.run_module("toolgate_cli", run_name="__main__")
