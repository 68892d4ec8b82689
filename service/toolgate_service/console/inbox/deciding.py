"""What a card's form says, as the API would be told it: the same models judge it."""

from toolgate_service.approvals.schemas import ApprovalDecision
from toolgate_service.console.forms import Form
from toolgate_service.errors import FieldErrors
from toolgate_service.grants.schemas import GrantTerms
from toolgate_service.web.bodies import read_object

#: for how long the same may be allowed, in seconds and in words
SPANS = (
    (900, "15 minutes"),
    (3_600, "1 hour"),
    (8 * 3_600, "8 hours"),
    (86_400, "1 day"),
    (7 * 86_400, "7 days"),
    (30 * 86_400, "30 days"),
)


def decision_in(form: Form) -> ApprovalDecision:
    """Return what a form decides.

    Raises:
        ApiError: 400, the edited arguments are no JSON object, or the terms no numbers.
        ValidationError: the API would refuse it too.
    """
    context = read_object(form["context"].encode()) if "context" in form else None
    grant = None
    if "uses" in form:
        grant = GrantTerms(
            uses=_number(form, "uses"),
            seconds=_number(form, "seconds"),
            except_fields=form.all("except_fields"),
        )
    return ApprovalDecision(note=form.text("note"), context=context, grant=grant)


def _number(form: Form, name: str) -> int:
    text = form[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < len("1000000000")):
        raise FieldErrors({name: ["must be a whole number"]})
    return int(text)
