"""What Slack sends, read: whatever it is, it is read or refused, and never fails."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.slack import block_actions, command, form

from toolgate_service.core.errors import FieldErrors
from toolgate_service.slack.schemas import (
    APPROVE,
    ButtonPress,
    Click,
    Command,
    Other,
    SlackUser,
    read_payload,
)

ID = "0192f0c0-0000-7000-8000-000000000001"
VALUE = f"v1.{ID}.{'ab' * 32}"
WHO = SlackUser("T1DC2JH3J", "U2CERLKJA")


def test_a_press_and_a_command_are_read() -> None:
    """The recorded shapes."""
    click = read_payload(form(block_actions(APPROVE, VALUE)))
    assert isinstance(click, Click)
    assert (click.slack_user, click.button) == (WHO, ButtonPress(ID, "ab" * 32, approves=True))
    assert click.response_url.startswith("https://hooks.slack.com/actions/")
    assert read_payload(command("link ABC")) == Command(WHO, "link ABC")
    assert read_payload(command("")) == Command(WHO, "")


def test_in_a_shared_channel_the_user_is_of_the_users_own_workspace() -> None:
    """Ids are unique within a workspace only."""
    payload = block_actions(APPROVE, VALUE)
    payload["user"]["team_id"] = "T0OTHER"
    click = read_payload(form(payload))
    assert isinstance(click, Click)
    assert click.slack_user == SlackUser("T0OTHER", "U2CERLKJA")
    del payload["user"]["team_id"]
    click = read_payload(form(payload))
    assert isinstance(click, Click)
    assert click.slack_user == WHO


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "view_submission"},
        {"type": "block_actions"},
        block_actions("somebody.elses", VALUE),
        block_actions(APPROVE, "v2.x"),
        block_actions(APPROVE, VALUE) | {"actions": []},
        block_actions(APPROVE, VALUE) | {"actions": block_actions(APPROVE, VALUE)["actions"] * 2},
    ],
)
def test_what_is_not_for_us_is_left_alone(payload: dict[str, Any]) -> None:
    """Slack sends more than presses on our buttons."""
    assert read_payload(form(payload)) == Other()


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"payload=%FF",
        b"payload={",
        b"payload=[]",
        b"payload=null",
        b"payload=%7B%7D",
        b'payload={"type":1}',
        b'payload={"type":"a","type":"b"}',
        b"payload={}&payload={}",
        b"&".join(b"a%d=1" % number for number in range(101)),
        b"payload=" + b"[" * 60_000,
        urlencode({"command": "/toolgate", "text": "link x", "team_id": "T1"}).encode(),
        urlencode({"command": "/toolgate", "user_id": "U 1", "team_id": "T1"}).encode(),
        form(block_actions(APPROVE, VALUE, user="U" * 65)),
        form(block_actions(APPROVE, VALUE) | {"team": {"id": 5}, "user": {"id": "U1"}}),
    ],
)
def test_what_is_wrong_is_refused(body: bytes) -> None:
    """400 with words that repeat nothing of it."""
    with pytest.raises(FieldErrors):
        read_payload(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing else is ever raised."""
    for sent in (body, b"payload=" + body, b"command=" + body):
        try:
            read_payload(sent)
        except FieldErrors:
            continue


@given(st.data())
def test_any_change_of_a_real_payload_is_read_or_refused(data: st.DataObject) -> None:
    """A member of the payload replaced by anything."""
    payload = block_actions(APPROVE, VALUE)
    holder: Any = data.draw(
        st.sampled_from([payload, payload["user"], payload["team"], payload["actions"][0]])
    )
    holder[data.draw(st.sampled_from(sorted(holder)))] = data.draw(JSON)
    try:
        read = read_payload(form(json.loads(json.dumps(payload))))
    except FieldErrors:
        return
    assert isinstance(read, Click | Other)
