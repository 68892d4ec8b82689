"""temporary"""

from dataclasses import dataclass
from datetime import datetime
from collections.abc import Mapping
from typing import Any

MAX_LENGTH = 2000


class InvalidExpression(ValueError):
    pass


@dataclass(frozen=True)
class Variables:
    args: Mapping[str, Any]
    action: str
    agent_id: str
    agent_name: str
    run_id: str
    now: datetime


class Expression:
    text: str

    def evaluate(self, variables: Variables) -> bool | None:
        return None


def compile_expression(text: str) -> Expression:
    return Expression()


def is_available() -> bool:
    return True
