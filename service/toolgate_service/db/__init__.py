"""What an operator does with the whole database; behind ``toolgate db``.

Every function reads the settings, does one thing, and returns a `Report`. Each raises `StartError` with one line for the
operator, and then has changed nothing.
"""

from toolgate_service.db.backing_up import backup
from toolgate_service.db.checking import check
from toolgate_service.db.copying import copy
from toolgate_service.db.restoring import restore
from toolgate_service.db.revisions import current, upgrade

__all__ = ["backup", "check", "copy", "current", "restore", "upgrade"]
