"""What an operator does by hand, straight on the database; behind ``toolgate admin``.

Every function reads the settings, does one thing in one transaction, and returns the lines to be shown. Each raises
`StartError` with one line for the operator, and then has changed nothing.
"""

from toolgate_service.admin.cleaning import prune_now
from toolgate_service.admin.organizations import activate, deactivate, link_customer, set_plan, set_rate
from toolgate_service.admin.people import create_organization, reset_password
from toolgate_service.admin.rotation import rotate_secret

__all__ = [
    "activate",
    "create_organization",
    "deactivate",
    "link_customer",
    "prune_now",
    "reset_password",
    "rotate_secret",
    "set_plan",
    "set_rate",
]
