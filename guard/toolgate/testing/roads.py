"""Which request goes where at the fake gateway, and who may ask."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from toolgate._http.messages import Request, Response
from toolgate.testing.answers import REQUIRED, Refusal, fields_refused, json_answer
from toolgate.testing.approvals import Ledger
from toolgate.testing.checks import Checks, Question
from toolgate.testing.clock import LeapingClock
from toolgate.testing.fields import REFERENCE_RULE, is_reference, read_object
from toolgate.testing.logbook import ORGANIZATION, Logbook
from toolgate.testing.seen import Checked

__all__ = ["Roads"]

_LONGEST_WAIT: Final = 60
# Whose the key is: what was written down for it goes to nobody else.
_WHOSE: Final = {"x-toolgate-organization": ORGANIZATION, "x-toolgate-environment": "production"}


class Roads:
    """Answers requests at once; who waits is told how long.

    Args:
        api_key: The one key that is good.
        agents: Whom the gateway knows; None for whoever asks.
    """

    def __init__(self, api_key: str, agents: Iterable[str] | None) -> None:
        self.lock = threading.RLock()
        self.clock = LeapingClock()
        self.ledger = Ledger(self.clock)
        self.checks = Checks(self.clock, self.ledger, agents)
        self.logbook = Logbook(self.clock, self.checks.knows)
        self.seen: list[Checked] = []
        self._api_key = api_key

    def answer(self, request: Request) -> Response:
        """The answer as things stand."""
        with self.lock:
            try:
                answer = self._answer(request)
            except Refusal as refusal:
                answer = json_answer({"detail": refusal.detail}, refusal.status)
            return (
                replace(answer, headers={**answer.headers, **_WHOSE}) if self._admitted(request) else answer
            )

    def waits_for(self, request: Request) -> tuple[str, int] | None:
        """The pending request for approval that a long poll waits for, and how many seconds; None for all others."""
        approval_id, seconds = _polled(request)
        with self.lock:
            found = next(
                (one for one in self.ledger.pending() if one.approval_id == approval_id and seconds), None
            )
            return None if found is None or not self._admitted(request) else (found.approval_id, seconds)

    def _answer(self, request: Request) -> Response:
        if not self._admitted(request):
            given = _header(request, "x-api-key")
            raise Refusal(HTTPStatus.UNAUTHORIZED, "Invalid API key" if given else "Missing API key")
        parts = urlsplit(request.url)
        steps = [unquote(step) for step in parts.path.split("/")[1:]]
        match request.method, *steps:
            case ["POST", "sdk", "check"]:
                return self._check(request)
            case ["POST", "sdk", "log"]:
                told, headers = self.logbook.add(read_object(request.body), _key(request))
                return json_answer(told, headers=headers)
            case ["POST", "sdk", "logs"]:
                return json_answer(self.logbook.add_many(read_object(request.body)))
            case ["GET", "sdk", "approvals", approval_id]:
                return json_answer(self.ledger.shown(self.ledger.find(approval_id)))
            case ["POST", "sdk", "approvals", approval_id, "cancel"]:
                rejected = parse_qs(parts.query).get("rejected") == ["true"]
                return json_answer(self.ledger.shown(self.ledger.withdraw(approval_id, rejected=rejected)))
            case ["GET", "sdk", "permissions"]:
                return self._permissions(parse_qs(parts.query))
        raise Refusal(HTTPStatus.NOT_FOUND, "Not Found")

    def _check(self, request: Request) -> Response:
        question = Question.read(read_object(request.body))
        verdict = self.checks.answer(question, _key(request))
        self.seen.append(
            Checked(
                question.action,
                question.agent_id,
                question.context,
                verdict.outcome,
                verdict.reason,
                verdict.approval_id or question.approval_id,
                question.run_id,
                question.dry_run,
                question.reason,
            )
        )
        return json_answer(verdict.shown(), headers=verdict.headers)

    def _permissions(self, query: dict[str, list[str]]) -> Response:
        agent_id = query.get("agent_id", [""])[0]
        if not agent_id:
            raise fields_refused({"agent_id": [REQUIRED]})
        if not self.checks.knows(agent_id):
            raise Refusal(HTTPStatus.NOT_FOUND, "Agent not found")
        active = agent_id not in self.checks.switched_off
        rules = list(self.checks.rules.values())[::-1] if active else []
        return json_answer(
            [
                {
                    "id": rule.permission_id,
                    "agent_id": agent_id,
                    "action": rule.permitted.action,
                    "requires_approval": rule.permitted.held,
                    "max_amount": rule.permitted.max_amount,
                    "amount_required": rule.permitted.amount_required,
                }
                for rule in rules
                if rule.permitted is not None
            ]
        )

    def _admitted(self, request: Request) -> bool:
        return _header(request, "x-api-key") == self._api_key


def _header(request: Request, name: str) -> str | None:
    return next((value for given, value in request.headers.items() if given.lower() == name), None)


def _key(request: Request) -> str | None:
    key = _header(request, "idempotency-key")
    if key is not None and not is_reference(key):
        raise fields_refused({"Idempotency-Key": [REFERENCE_RULE]})
    return key


def _polled(request: Request) -> tuple[str, int]:
    parts = urlsplit(request.url)
    asked = parse_qs(parts.query).get("wait", ["0"])[0]
    approval_id = unquote(parts.path.rpartition("/")[2]) if request.method == "GET" else ""
    if not (asked.isascii() and asked.isdecimal() and int(asked) <= _LONGEST_WAIT):
        return approval_id, 0
    return approval_id, int(asked)
