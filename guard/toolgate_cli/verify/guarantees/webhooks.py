"""Guarantees about webhooks: signatures, content, secrets and destinations."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from toolgate_cli.verify.receiver import WebhookReceiver, event_of
from toolgate_cli.verify.registry import NotTested, Violation, guarantee, require
from toolgate_cli.verify.trial import Trial
from toolgate_cli.webhook_listener import Delivery, Verifier

#: seconds within which an event must arrive
_SECONDS = 60.0
_PATH = "/api/webhooks"


def _receiver(t: Trial) -> WebhookReceiver:
    if t.options.receiver is None:
        raise NotTested(t.options.receiver_problem)
    return t.options.receiver


@asynccontextmanager
async def _webhook(t: Trial, **fields: object) -> AsyncIterator[dict[str, Any]]:
    """Create a webhook to the receiver, and delete it at the end."""
    url = _receiver(t).url
    answer = await t.admin.send("POST", _PATH, {"url": url, **fields})
    if answer.status == 400 and "url" in answer.text:
        raise NotTested(
            f"the gateway rejects the URL {url!r} of this command's receiver: {answer.text[:200]}"
        )
    require(answer.is_success, f"the gateway did not create a webhook: {answer.text[:200]}")
    created: dict[str, Any] = answer.json()
    try:
        yield created
    finally:
        await t.admin.send("DELETE", f"{_PATH}/{created['id']}")


async def _receive(
    t: Trial, webhook: dict[str, Any], matches: Callable[[Delivery], bool], what: str
) -> Delivery:
    found = await _receiver(t).wait_for(matches, _SECONDS)
    if found is not None:
        return found
    deliveries = await t.admin.get(f"{_PATH}/{webhook['id']}/deliveries")
    errors = [one["error"] for one in deliveries if one["error"]]
    if errors and not any(one["delivered_at"] for one in deliveries):
        raise NotTested(f"the gateway cannot reach {_receiver(t).url!r}: {errors[0]}")
    raise Violation(f"{what} did not arrive within {_SECONDS:.0f} s")


@guarantee(
    "webhooks.signed", "Each event has a valid signature, made with the secret of its webhook", "12.4.2"
)
async def sign_events(t: Trial) -> None:
    async with _webhook(t) as webhook, _webhook(t) as other:
        agent, action = await t.held_agent()
        approval_id = await t.hold(agent, action, {"a": 1})
        verifiers = {one["id"]: Verifier(one["secret"]) for one in (webhook, other)}
        require(webhook["secret"] != other["secret"], "two webhooks have the same secret")

        def is_signed_by(webhook_id: str) -> Callable[[Delivery], bool]:
            verifier = verifiers[webhook_id]
            return lambda one: (
                approval_id.encode() in one.body and verifier.find_error(one.headers, one.body) is None
            )

        for one in (webhook, other):
            found = await _receive(t, one, is_signed_by(one["id"]), "an event with a valid signature")
            changed = found.body.replace(approval_id.encode(), approval_id[::-1].encode())
            problem = verifiers[one["id"]].find_error(found.headers, changed)
            require(problem is not None, "the signature of a changed event is valid")
            body = found.body.decode(errors="replace")
            require(
                one["secret"] not in body + str(dict(found.headers)),
                "an event contains the secret of its webhook",
            )


@guarantee(
    "webhooks.complete",
    ("Each status change of an approval request is delivered once, as an event with its own id"),
    "12.4.2",
)
async def deliver_all_steps(t: Trial) -> None:
    kinds = [f"approval.{kind}" for kind in ("requested", "approved", "consumed")]
    async with _webhook(t, events=kinds) as webhook:
        verifier = Verifier(webhook["secret"])
        agent, action = await t.held_agent()
        approval_id = await t.approved(agent, action, {"a": 1})
        await t.must_allow(agent, action, {"a": 1})
        ids = set()
        for kind in kinds:

            def matches(one: Delivery, kind: str = kind) -> bool:
                return (
                    event_of(one).get("type") == kind
                    and approval_id.encode() in one.body
                    and verifier.find_error(one.headers, one.body) is None
                )

            ids.add((await _receive(t, webhook, matches, f"the event {kind}")).headers["webhook-id"])
        require(len(ids) == len(kinds), "two events have the same id")


@guarantee(
    "webhooks.minimal", "Events contain the arguments of calls only if the webhook includes them", "9.5.4"
)
async def omit_arguments(t: Trial) -> None:
    async with _webhook(t) as plain:
        verifier, canary = Verifier(plain["secret"]), f"canary-{t.prefix}"
        agent, action = await t.held_agent()
        approval_id = await t.hold(agent, action, {"secret": canary})

        def matches(one: Delivery) -> bool:
            return approval_id.encode() in one.body and verifier.find_error(one.headers, one.body) is None

        found = await _receive(t, plain, matches, "an event")
        require(canary.encode() not in found.body, "an event contains the arguments of the call")


@guarantee("webhooks.secret", "The secret of a webhook is shown only when it is created", "9.5.4")
async def hide_webhook_secrets(t: Trial) -> None:
    created = await t.admin.post(
        _PATH, {"url": "https://webhook.invalid/verify", "events": ["agent.created"]}
    )
    paths = (_PATH, f"{_PATH}/{created['id']}", f"{_PATH}/{created['id']}/deliveries", "/api/audit?limit=100")
    for path in paths:
        text = (await t.admin.send("GET", path)).text
        require(created["secret"] not in text, f"GET {path} shows the secret of a webhook")
    await t.admin.delete(f"{_PATH}/{created['id']}")


@guarantee("webhooks.destination", "Webhooks cannot reach metadata services and reserved addresses", "9.3.7")
async def refuse_internal_addresses(t: Trial) -> None:
    for host in ("169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "0.0.0.0"):
        answer = await t.admin.send("POST", _PATH, {"url": f"https://{host}/latest/meta-data"})
        if answer.is_success:
            await t.admin.delete(f"{_PATH}/{answer.json()['id']}")
        require(not answer.is_success, f"a webhook to {host} was accepted")
