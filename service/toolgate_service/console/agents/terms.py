"""What the forms of agents and permissions say, as the API would be told it: the same models judge it."""

from pydantic import JsonValue

from toolgate_service import exact_json
from toolgate_service.agents.schemas import AgentChange, NewAgent
from toolgate_service.console.forms import Form
from toolgate_service.errors import FieldErrors
from toolgate_service.exact_json import Json
from toolgate_service.permissions.schemas import NewPermission, PermissionChange


def new_agent_in(form: Form) -> NewAgent:
    """Return the agent that a form asks for.

    Raises:
        ValidationError: the API would refuse it too.
    """
    return NewAgent(name=form["name"], description=form.text("description"))


def switch_in(form: Form) -> AgentChange:
    """Return the change that a form asks for: to be on or off.

    Raises:
        ValidationError: it asks for something else.
    """
    asked: JsonValue = form["status"]
    return AgentChange.model_validate({"status": asked})


def new_name_in(form: Form) -> AgentChange:
    """Return the change that a form asks for: another name, and another description or none.

    Raises:
        ValidationError: the API would refuse it too.
    """
    return AgentChange(name=form["name"], description=form.text("description"))


def new_permission_in(form: Form) -> NewPermission:
    """Return the permission that a form asks for.

    Raises:
        FieldErrors: something that should be a number is none.
        ValidationError: the API would refuse it too.
    """
    return NewPermission.model_validate({"action": form["action"].strip(), **_terms(form)})


def permission_change_in(form: Form) -> PermissionChange:
    """Return the change of a permission that a form asks for: all of its terms.

    Raises:
        FieldErrors: something that should be a number is none.
        ValidationError: the API would refuse it too.
    """
    return PermissionChange.model_validate(_terms(form))


def _terms(form: Form) -> dict[str, Json]:
    maximum = number_in(form, "max_amount")
    # A box that is not ticked is not sent.
    return {
        "requires_approval": "requires_approval" in form,
        "max_amount": maximum,
        "amount_required": maximum is not None and "amount_required" in form,
        "required_approvals": number_in(form, "required_approvals") or 1,
        "separation_of_duties": "separation_of_duties" in form,
    }


def number_in(form: Form, name: str) -> Json:
    """Return the number that was typed, exactly; None for nothing.

    Raises:
        FieldErrors: it is none.
    """
    text = form.text(name)
    if text is None:
        return None
    try:
        value = exact_json.loads(text.encode())
    except exact_json.InvalidJson:
        value = None
    if isinstance(value, bool | str | list | dict) or value is None:
        raise FieldErrors({name: [f"{text[:40]!r} is no number; write for instance 49.90"]})
    return value
