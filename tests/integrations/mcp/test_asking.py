"""What a client shows for a held call, and what it brings back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import (
    CallToolRequestParams,
    ClientCapabilities,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    FormElicitationCapability,
    UrlElicitationCapability,
)

from toolgate import ApprovalPending, ConfigurationError
from toolgate_integrations.mcp.elicitation import Page, Round, way_to_ask

PENDING = ApprovalPending(action="bank.pay", agent_id="bot", approval_id="a-1")
HERE = Page("https://gate.example.com/approvals/{approval_id}")
NOWHERE = Page(None)
FORM = FormElicitationCapability()
URL = UrlElicitationCapability()


@pytest.mark.parametrize(
    ("page", "elicitation", "way"),
    [
        (HERE, ElicitationCapability(form=FORM, url=URL), "url"),
        (HERE, ElicitationCapability(url=URL), "url"),
        (HERE, ElicitationCapability(form=FORM), "form"),
        (HERE, ElicitationCapability(), "form"),
        (HERE, None, None),
        (NOWHERE, ElicitationCapability(form=FORM, url=URL), "form"),
        (NOWHERE, ElicitationCapability(), "form"),
        (NOWHERE, ElicitationCapability(url=URL), None),
    ],
)
def test_a_client_is_asked_in_a_way_it_declared(page, elicitation, way):
    """The page is opened where client and gateway have that; a client that declares no way means forms."""
    assert way_to_ask(ClientCapabilities(elicitation=elicitation), page) == way


def test_a_client_that_declared_nothing_is_not_asked():
    """Without capabilities there is no way."""
    assert way_to_ask(None, HERE) is None


def test_the_question_opens_the_page_of_the_approval():
    """The address is the template's, with the approval in it."""
    question = HERE.question("url", PENDING)
    assert isinstance(question, ElicitRequestURLParams)
    assert question.url == "https://gate.example.com/approvals/a-1"
    assert "'bank.pay' waits for a person" in question.message


@pytest.mark.parametrize(
    ("page", "named"), [(HERE, "https://gate.example.com/approvals/a-1"), (NOWHERE, "approvals approve a-1")]
)
def test_a_form_says_where_to_decide_and_asks_for_nothing(page, named):
    """A form has no field in which anybody could decide."""
    question = page.question("form", PENDING)
    assert isinstance(question, ElicitRequestFormParams)
    assert named in question.message
    assert question.requested_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "template",
    [
        "https://gate.example.com/approvals",
        "javascript:alert('{approval_id}')",
        "https://user:secret@gate.example.com/{approval_id}",
        "https:///{approval_id}",
        "https://[gate/{approval_id}",
        "https://gate.example.com/\n{approval_id}",
        7,
        "",
    ],
)
def test_an_address_that_cannot_be_a_page_is_refused(template):
    """Said at once, with an example."""
    with pytest.raises(ConfigurationError, match=r"approval_page is .*; use an address such as"):
        Page(template)


@given(
    st.none() | st.text(),
    st.none() | st.dictionaries(st.text().filter(lambda key: key != "toolgate"), st.just("accept")),
)
def test_questions_of_the_tool_itself_survive_the_ones_of_the_guard(state, answers):
    """The tool's own state and answers go along, and are what it sees when it runs."""
    own = None if answers is None else {key: ElicitResult(action="accept") for key in answers}
    first = CallToolRequestParams(name="pay", arguments={"a": 1}, request_state=state, input_responses=own)
    required = Round.of(first, "bank").required(HERE.question("url", PENDING))
    back = CallToolRequestParams(
        name="pay",
        arguments={"a": 1},
        request_state=required.request_state,
        input_responses={"toolgate": ElicitResult(action="accept")},
    )
    turn = Round.of(back, "bank")
    assert (turn.number, turn.asked, turn.given_up) == (1, True, None)
    seen = turn.restored(back, {"a": 2})
    assert (seen.request_state, seen.input_responses, seen.arguments) == (state, own, {"a": 2})


@pytest.mark.parametrize(
    "state",
    [
        "",
        "{",
        "[]",
        "7",
        json.dumps({"toolgate": "shop", "call": "c", "round": 1}),
        json.dumps({"toolgate": "bank", "call": 5, "round": 1}),
    ],
)
def test_a_state_of_somebody_else_begins_a_call(state):
    """What is not a question of the guard is the tool's, and the call is a new one."""
    params = CallToolRequestParams(name="pay", request_state=state)
    first, second = Round.of(params, "bank"), Round.of(params, "bank")
    assert (first.asked, first.state) == (False, state)
    assert first.call_id != second.call_id


def test_a_call_keeps_its_name_over_its_rounds():
    """Whatever else changes, the gateway is asked about the same call."""
    turn = Round.of(CallToolRequestParams(name="pay"), "bank")
    required = turn.required(HERE.question("url", PENDING))
    later = Round.of(CallToolRequestParams(name="pay", request_state=required.request_state), "bank")
    assert later.call_id == turn.call_id == turn.answered(ElicitResult(action="accept")).call_id


@pytest.mark.parametrize(
    ("action", "told"), [("decline", "declined the call in the client"), ("cancel", "was not decided")]
)
def test_a_user_who_will_not_have_it_ends_the_call(action, told):
    """A no and a dismissal are told apart."""
    turn = Round.of(CallToolRequestParams(name="pay"), "bank").answered(ElicitResult(action=action))
    assert told in str(turn.given_up)
