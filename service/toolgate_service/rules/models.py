"""Database table of rules."""

from datetime import datetime

from sqlalchemy import CheckConstraint, Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, of_user, one_of

FORBID = "forbid"
REQUIRE_APPROVAL = "require_approval"
ALLOW = "allow"
#: effects of rules, strongest first: of several matching rules, those with the strongest effect decide
EFFECTS = (FORBID, REQUIRE_APPROVAL, ALLOW)


class Rule(Table, table=True):
    """Rule that forbids, requires approval for, or allows the calls that it matches.

    A rule matches a call if its agents, its actions and its condition match.
    """

    __tablename__ = "rules"
    __table_args__ = (
        in_environment(),
        of_user("created_by"),
        UniqueConstraint("organization_id", "environment", "name"),
        Index("ix_rules_listed", "organization_id", "environment", "created_at", "id"),
        one_of("effect", EFFECTS),
        CheckConstraint("required_approvals >= 1", name="required_approvals"),
        CheckConstraint("approval_ttl_seconds > 0", name="approval_ttl_seconds"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    name: str = Field(max_length=100)
    effect: str = Field(max_length=16)
    #: ids of the agents to which the rule applies, as a JSON list; null for all agents
    agents: str | None = Field(default=None, sa_type=Text)
    #: actions and prefixes followed by ``*``, as a JSON list
    actions: str = Field(sa_type=Text)
    #: CEL expression over the call; null if the rule matches every call of its agents and actions
    condition: str | None = Field(default=None, sa_type=Text)
    #: terms of the approval; null if the rule does not restrict them or does not require approval
    required_approvals: int | None = None
    approval_ttl_seconds: int | None = None
    #: ids of the only users who may approve, as a JSON list; null if every user with the right may approve
    approvers: str | None = Field(default=None, sa_type=Text)
    enabled: bool = True
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)
