"""Run the verifier as ``python verification FILE``, without an installation of Toolgate."""

import sys
from importlib import import_module
from pathlib import Path

if __package__:
    from .command import main
else:
    folder = Path(__file__).resolve().parent
    sys.path[0] = str(folder.parent)
    main = import_module(f"{folder.name}.command").main

sys.exit(main())
