"""The report of `toolgate verify`, and the limit of its requests."""

import asyncio
import time
from xml.etree import ElementTree as ET

import pytest

from toolgate_cli.verify.client import CALLERS, Throttle
from toolgate_cli.verify.registry import Guarantee, Violation, guarantee, load_guarantees, require
from toolgate_cli.verify.report import Outcome, Report, Result


async def untested(_trial: object) -> None:
    """Do nothing."""


def result(outcome: Outcome, detail: str = "") -> Result:
    found = Guarantee("topic.name", "Something holds", ("9.2.8",), untested)
    return Result(found, outcome, detail, 0.5)


def report(*results: Result) -> Report:
    return Report(["https://gateway.test"], "0.1", 1.25, 1234, results, ["a note"])


def test_exit_code_is_1_only_if_a_guarantee_is_broken() -> None:
    assert report(result(Outcome.PASS), result(Outcome.NOT_TESTED)).exit_code == 0
    assert report(result(Outcome.PASS), result(Outcome.FAIL)).exit_code == 1


def test_exit_code_is_2_if_the_gateway_did_not_respond_to_a_test() -> None:
    interrupted = Result(result(Outcome.PASS).guarantee, Outcome.NOT_TESTED, "no response", 1, True)
    assert report(result(Outcome.PASS), interrupted).exit_code == 2
    assert report(result(Outcome.FAIL), interrupted).exit_code == 1


def test_control_characters_of_the_gateway_are_escaped() -> None:
    one = result(Outcome.FAIL, "status 500, \x1b[2J\x00\n")
    assert one.line().isprintable()
    suite = ET.fromstring(report(one).junit())
    [failure] = suite.iter("failure")
    assert failure.get("message") == "status 500, \\x1b[2J\\x00\\n"


def test_summary_contains_all_numbers() -> None:
    shown = report(result(Outcome.PASS), result(Outcome.FAIL), result(Outcome.NOT_TESTED)).summary()
    assert shown == "1 PASS, 1 FAIL, 1 NOT TESTED in 1.2 s, 1,234 requests"


def test_json_contains_the_detail_and_the_requirements() -> None:
    [found] = report(result(Outcome.FAIL, "broken")).to_json()["results"]
    assert found["aisvs"] == ["9.2.8"]
    assert (found["outcome"], found["detail"]) == ("FAIL", "broken")


def test_unknown_guarantee_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown guarantee or topic 'x'"):
        load_guarantees(["x"])


def test_two_guarantees_cannot_have_the_same_id() -> None:
    with pytest.raises(ValueError, match="two guarantees have the id"):
        guarantee(load_guarantees()[0].id, "Something else")(untested)


def test_violation_contains_the_message() -> None:
    require(condition=True, message="unused")
    with pytest.raises(Violation, match="broken"):
        require(condition=False, message="broken")


async def test_requests_are_limited_after_the_first_burst() -> None:
    throttle = Throttle(200)
    began = time.monotonic()
    await throttle.acquire(CALLERS)
    await throttle.acquire(20)
    assert time.monotonic() - began >= 20 / 200 - 0.01


async def test_waiting_requests_are_served_in_turn() -> None:
    throttle, order = Throttle(2000), list[int]()

    async def take(number: int) -> None:
        await throttle.acquire(CALLERS)
        order.append(number)

    await asyncio.gather(*(take(number) for number in range(3)))
    assert order == [0, 1, 2]
