"""Errors as the API tells them: JSON ``{"detail": …}`` with the shapes of spec §7.

ApiError                 any refusal with a status and a detail
├── FieldErrors          400, a map from field name to messages
└── PlanLimitExceeded    403, the plan-limit object
StorageError             the database cannot be opened or used; for the operator, at start
StartError               a command of the operator cannot be carried out
StorageFault             the database cannot be used just now; the request may be repeated
└── LostRace             it rolled the transaction back for another one's sake; the gateway itself does it anew
"""

from collections.abc import Mapping
from typing import TypeAlias

from starlette.exceptions import HTTPException

Detail: TypeAlias = str | Mapping[str, object]

REQUIRED = "This field is required"


class ApiError(HTTPException):
    """A refusal the caller may read: a status, a detail, and headers where the status asks for them."""

    def __init__(self, status: int, detail: Detail, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status_code=status, headers=headers)
        # Starlette types the detail as text; the specification also has maps and objects.
        self.reply_detail: Detail = detail


class FieldErrors(ApiError):
    """400 with ``{"detail": {"<field>": ["message", …]}}`` (spec §7, decisions §2)."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        super().__init__(400, fields)


class PlanLimitExceeded(ApiError):
    """403 with the plan-limit object of spec §7."""

    def __init__(self, limit_type: str, used: int, limit: int, plan: str) -> None:
        super().__init__(403, plan_limit_detail(limit_type, used, limit, plan))


class StorageFault(Exception):
    """The database refused or did not answer: nothing is wrong with the request. The message holds no values."""


class LostRace(StorageFault):
    """The database rolled a transaction back, all of it and for certain, because of another one (`storage.races`)."""


class StorageError(Exception):
    """The database cannot be opened, created or brought up to date; the message names it and the cure."""


class StartError(Exception):
    """What the operator asked for cannot be done; the message is one line, for the operator."""


def plan_limit_detail(limit_type: str, used: int, limit: int, plan: str) -> dict[str, object]:
    """Return the detail of a reached plan limit (spec §7)."""
    return {
        "error": "plan_limit_exceeded",
        "message": f"The {plan} plan's limit of {limit_type} is reached: {used}/{limit} used",
        "limit_type": limit_type,
        "current_plan": plan,
        "upgrade_url": "/console/plan",
    }


def feature_not_available(feature: str, plan: str) -> ApiError:
    """Return the 403 for what an organization's plan does not include (decisions §2)."""
    return ApiError(
        403,
        {
            "error": "feature_not_available",
            "feature": feature,
            "message": f"The {plan} plan does not include {feature}",
            "current_plan": plan,
            "upgrade_url": "/console/plan",
        },
    )


def bad_credentials() -> ApiError:
    """Return the 401 that a missing, malformed, expired and revoked token have in common (decisions §2)."""
    return ApiError(401, "Not authenticated", {"WWW-Authenticate": "Bearer"})


def not_found(what: str) -> ApiError:
    """Return a 404 that names the kind of thing, for instance ``Agent not found``."""
    return ApiError(404, f"{what} not found")
