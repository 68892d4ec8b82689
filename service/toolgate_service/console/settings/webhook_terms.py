"""What the forms of webhooks say, as the API would be told it: the same models judge it."""

from toolgate_service.console.forms import Form
from toolgate_service.webhooks.models import SLACK, STANDARD
from toolgate_service.webhooks.schemas import NewWebhook, WebhookChange


def new_webhook_in(form: Form) -> NewWebhook:
    """Return the webhook that a form asks for.

    Raises:
        ValidationError: the API would refuse it too.
    """
    return NewWebhook.model_validate({"kind": STANDARD, "url": form["url"].strip(), **_terms(form)})


def new_channel_in(form: Form) -> NewWebhook:
    """Return the webhook to Slack that a form asks for.

    Raises:
        ValidationError: the API would refuse it too.
    """
    return NewWebhook.model_validate(
        {
            "kind": SLACK,
            "url": form["url"].strip(),
            "signing_secret": form.text("signing_secret"),
            "description": form.text("description"),
            "include_context": "include_context" in form,
        }
    )


def webhook_change_in(form: Form) -> WebhookChange:
    """Return the change of a webhook that a form asks for: all of its terms.

    What of Slack is never shown, its URL and its secret, stays where nothing is typed.

    Raises:
        ValidationError: the API would refuse it too.
    """
    typed = {name: text for name in ("url", "signing_secret") if (text := form.text(name)) is not None}
    return WebhookChange.model_validate({**typed, **_terms(form)})


def switch_in(form: Form) -> WebhookChange:
    """Return the change that a form asks for: to be on or off.

    Raises:
        ValidationError: it asks for something else.
    """
    wanted: object = {"on": True, "off": False}.get(form["status"], form["status"])
    return WebhookChange.model_validate({"is_active": wanted})


def _terms(form: Form) -> dict[str, object]:
    # A box that is not ticked is not sent.
    return {
        "description": form.text("description"),
        "events": form.all("events") if form["which"] == "some" else None,
        "include_context": "include_context" in form,
    }
