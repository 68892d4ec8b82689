"""Terms of an approval request: the approval rules of its permission when it was asked, and as they are now."""

import json
from collections.abc import Collection
from typing import NamedTuple

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import Approval
from toolgate_service.grants.models import Grant
from toolgate_service.permissions.models import Permission


class Terms(NamedTuple):
    """Rules that decide who may approve, and how many people must.

    Attributes:
        required_approvals: distinct people who must approve.
        separation_of_duties: whether the makers may not approve.
        makers: ids of the users who created the agent, or created or loosened the permission.
    """

    required_approvals: int
    separation_of_duties: bool
    makers: frozenset[str]

    def stricter(self, other: "Terms") -> "Terms":
        """Return the stricter of both, rule by rule."""
        return Terms(
            max(self.required_approvals, other.required_approvals),
            self.separation_of_duties or other.separation_of_duties,
            self.makers | other.makers,
        )


def current_terms(permission: Permission, agent: Agent) -> Terms:
    """Return the terms that a permission has now."""
    makers = {agent.created_by, permission.created_by, *loosened_by(permission)}
    return Terms(permission.required_approvals, permission.separation_of_duties, frozenset(makers))


def stored_terms(of: Approval | Grant) -> Terms:
    """Return the terms that a request was asked under; a temporary approval has those of its request.

    A gateway before revision 0016 stores only the number of people, so that the current terms decide.
    """
    makers = json.loads(of.makers) if of.makers else ()
    return Terms(of.required_approvals, bool(of.separation_of_duties), frozenset(makers))


def store_terms(of: Approval | Grant, terms: Terms) -> None:
    """Store the terms that a request is asked under, or what a temporary approval was given under."""
    of.required_approvals, of.separation_of_duties = terms.required_approvals, terms.separation_of_duties
    of.makers = json.dumps(sorted(terms.makers))


def loosened_by(permission: Permission) -> Collection[str]:
    """Return the ids of the users who ever loosened a permission."""
    return json.loads(permission.loosened_by) if permission.loosened_by else ()
