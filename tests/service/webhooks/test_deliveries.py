"""Deliveries over HTTP: test events, lists, retries, rotated secrets, disabled webhooks."""

import threading

import pytest
from standardwebhooks import Webhook as Verifier
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.pages import walked
from support.receiver import Answer, Receiver
from support.shapes import complaints
from support.standard_webhooks import is_signed, signatures_of
from support.tables import execute
from support.upkeep import ago_text
from support.waiting import until


def test_a_trial_reaches_this_webhook_alone(told: Owner, receiver: Receiver) -> None:
    """The `webhook.test` event is signed, and its delivery shows the result."""
    hook = Hook(told, receiver)
    Hook(told, receiver)
    queued = hook.post("/test", 202)
    assert (queued["status"], queued["type"], queued["attempts"]) == ("pending", "webhook.test", 0)
    (got,) = hook.told("webhook.test")
    assert got.event["data"]["webhook"]["id"] == hook.made["id"]
    assert hook.secret not in got.body.decode()
    (delivery,) = hook.settled()
    assert (delivery["id"], delivery["event_id"]) == (queued["id"], got.id)
    assert (delivery["status"], delivery["response_code"], delivery["attempts"]) == ("delivered", 200, 1)
    assert delivery["delivered_at"] == delivery["last_attempt_at"]
    assert hook.read()["last_success_at"] == delivery["delivered_at"]
    assert Verifier(hook.secret).verify(got.body, dict(got.headers)) == got.event
    assert len(receiver.got) == 1


def test_a_failed_trial_is_not_repeated(told: Owner, receiver: Receiver) -> None:
    """A test event has one attempt, and its failure does not disable the webhook."""
    receiver.default = Answer(410)
    hook = Hook(told, receiver)
    hook.post("/test", 202)
    (delivery,) = hook.settled()
    assert (delivery["status"], delivery["response_code"]) == ("failed", 410)
    assert delivery["error"] == "the receiver responded with 410"
    assert hook.read()["is_active"] is True


def test_a_delivery_is_sent_again_under_the_same_id(told: Owner, receiver: Receiver) -> None:
    """A retried delivery is pending at once, also after a success, and has the same `webhook-id`."""
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    (first,) = hook.settled()
    again = hook.post(f"/deliveries/{first['id']}/retry")
    assert (again["id"], again["status"], again["delivered_at"]) == (first["id"], "pending", None)
    one, other = hook.told("agent.created", 2)
    assert (one.id, one.body) == (other.id, other.body)
    assert one.id == first["event_id"]
    (settled,) = hook.settled()
    assert settled["status"] == "delivered"
    assert told.http.post(f"{hook.path}/deliveries/{first['event_id']}/retry").status_code == 404


def test_every_webhook_gets_the_event_under_one_id(told: Owner, receiver: Receiver) -> None:
    """Two webhooks receive the same event."""
    Hook(told, receiver, "agent.created")
    Hook(told, receiver)
    told.agent()
    one, other = receiver.wait(2)
    assert (one.id, one.body) == (other.id, other.body)
    assert one.headers["webhook-signature"] != other.headers["webhook-signature"]


def test_a_failure_is_tried_again(told: Owner, receiver: Receiver) -> None:
    """A failed delivery shows code and reason, and the next attempt has the same id."""
    receiver.answers.append(Answer(503, {"Retry-After": "1"}))
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    waiting = until(lambda: [one for one in hook.deliveries(status="pending") if one["attempts"] == 1])[0]
    assert (waiting["response_code"], waiting["error"]) == (503, "the receiver responded with 503")
    assert waiting["next_attempt_at"] > waiting["last_attempt_at"]
    # Sooner than the schedule says.
    hook.post(f"/deliveries/{waiting['id']}/retry")
    first, second = receiver.wait(2)
    assert first.id == second.id
    (settled,) = hook.settled()
    assert (settled["status"], settled["attempts"]) == ("delivered", 2)


def test_gone_switches_a_webhook_off(told: Owner, receiver: Receiver) -> None:
    """After a 410 the webhook is disabled and its pending deliveries fail; an administrator can enable it."""
    receiver.answers.append(Answer(410))
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    until(lambda: not hook.read()["is_active"])
    off = hook.read()
    assert (off["disabled_reason"], off["disabled_at"] is not None) == (
        "the receiver responded with 410 Gone",
        True,
    )
    (delivery,) = hook.deliveries()
    assert (delivery["status"], delivery["next_attempt_at"]) == ("failed", None)
    (entry,) = told.http.get("/api/audit", params={"kind": "webhook.disabled"}).json()
    assert (entry["resource_id"], entry["user_id"]) == (hook.made["id"], None)
    told.agent()
    for path in ("/test", f"/deliveries/{delivery['id']}/retry"):
        assert told.http.post(hook.path + path).status_code == 409
    on = hook.change(is_active=True)
    assert (on["is_active"], on["disabled_reason"], on["disabled_at"]) == (True, None, None)
    told.agent("heard of")
    assert hook.told("agent.created", 2)[-1].event["data"]["agent"]["name"] == "heard of"
    assert len(receiver.got) == 2


def test_three_silent_days_switch_a_webhook_off(teller: LiveGateway, told: Owner, receiver: Receiver) -> None:
    """Without a success since the event, the webhook is disabled with the reason."""
    receiver.default = Answer(500)
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    waiting = until(lambda: [one for one in hook.deliveries() if one["attempts"] == 1])[0]
    execute(
        teller,
        "UPDATE events SET created_at = ? WHERE id = ?",
        ago_text(days=3, seconds=1),
        waiting["event_id"],
    )
    execute(
        teller, "UPDATE deliveries SET next_attempt_at = ? WHERE id = ?", ago_text(seconds=1), waiting["id"]
    )
    until(lambda: not hook.read()["is_active"])
    assert hook.read()["disabled_reason"] == "no delivery succeeded for three days"
    (delivery,) = hook.deliveries()
    assert (delivery["status"], delivery["attempts"]) == ("failed", 2)


def test_three_days_end_a_delivery_alone_where_others_arrived(
    teller: LiveGateway, told: Owner, receiver: Receiver
) -> None:
    """A receiver that refuses one event and accepts others stays enabled."""
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    hook.settled()
    receiver.default = Answer(500)
    told.agent()
    waiting = until(lambda: [one for one in hook.deliveries(status="pending") if one["attempts"] == 1])[0]
    execute(
        teller,
        "UPDATE events SET created_at = ? WHERE id = ?",
        ago_text(days=3, seconds=1),
        waiting["event_id"],
    )
    execute(
        teller, "UPDATE deliveries SET next_attempt_at = ? WHERE id = ?", ago_text(seconds=1), waiting["id"]
    )
    until(lambda: hook.deliveries(status="failed"))
    assert hook.read()["is_active"] is True


@pytest.mark.parametrize("how", ["switched off", "deleted"])
def test_what_was_on_its_way_ends_with_the_webhook(
    teller: LiveGateway, told: Owner, receiver: Receiver, how: str
) -> None:
    """After the response to the administrator there are no further attempts."""
    receiver.default = Answer(500)
    hook = Hook(told, receiver, "agent.created")
    told.agent()
    until(lambda: [one for one in hook.deliveries() if one["attempts"] == 1])
    if how == "deleted":
        assert told.http.delete(hook.path).status_code == 204
    else:
        hook.change(is_active=False)
        (delivery,) = hook.deliveries()
        assert (delivery["status"], delivery["error"]) == ("failed", "the webhook was disabled")
    execute(
        teller,
        "UPDATE deliveries SET next_attempt_at = ? WHERE webhook_id = ? AND status = 'pending'",
        ago_text(seconds=1),
        hook.made["id"],
    )
    other = Hook(told, receiver, "agent.updated")
    agent = told.agent()
    told.http.put(f"/api/agents/{agent}", json={"name": "x"})
    other.told("agent.updated")
    assert len(receiver.wait(1, lambda got: got.event["type"] == "agent.created")) == 1


def test_the_former_secret_signs_for_a_day(teller: LiveGateway, told: Owner, receiver: Receiver) -> None:
    """After a rotation both secrets sign for a day, then only the new one."""
    hook = Hook(told, receiver)
    former = hook.secret
    rotated = hook.post("/rotate-secret")
    assert set(rotated) == {"id", "secret", "former_secret_expires_at"}
    hook.secret = rotated["secret"]
    assert hook.secret != former
    hook.post("/test", 202)
    (got,) = hook.told("webhook.test")
    assert is_signed(former, got.headers, got.body)
    assert len(signatures_of(got.headers)) == 2
    execute(
        teller,
        "UPDATE webhook_secrets SET expires_at = ? WHERE webhook_id = ? AND expires_at IS NOT NULL",
        ago_text(seconds=1),
        hook.made["id"],
    )
    hook.post("/test", 202)
    got = hook.told("webhook.test", 2)[-1]
    assert not is_signed(former, got.headers, got.body)
    assert len(signatures_of(got.headers)) == 1
    assert former not in told.http.get("/api/audit").text


def test_a_secret_is_not_rotated_without_end(told: Owner, receiver: Receiver) -> None:
    """At most four former secrets sign, as each adds a signature."""
    hook = Hook(told, receiver)
    for _ in range(4):
        hook.secret = hook.post("/rotate-secret")["secret"]
    assert told.http.post(f"{hook.path}/rotate-secret").status_code == 409
    hook.post("/test", 202)
    (got,) = hook.told("webhook.test")
    assert len(signatures_of(got.headers)) == 5


def test_deliveries_are_paged_and_filtered(told: Owner, receiver: Receiver) -> None:
    """Newest first, with cursor and status filter; an unknown status is refused."""
    receiver.answers.extend([Answer(500), Answer(200), Answer(404)])
    hook = Hook(told, receiver)
    for _ in range(5):
        hook.post("/test", 202)
        hook.settled()
    whole = hook.deliveries()
    assert [one["response_code"] for one in whole] == [200, 200, 404, 200, 500]
    assert [one["response_code"] for one in hook.deliveries(status="failed")] == [404, 500]
    assert hook.deliveries(status="pending") == []
    assert walked(told, f"{hook.path}/deliveries", limit=2) == whole
    for params, field in (({"status": "lost"}, "status"), ({"limit": 101}, "limit"), ({"limit": 0}, "limit")):
        assert list(complaints(told.http.get(f"{hook.path}/deliveries", params=params))) == [field]


def test_one_slow_receiver_keeps_nobody_waiting(told: Owner, receiver: Receiver) -> None:
    """A receiver that never responds does not delay another one."""
    held = threading.Event()
    with Receiver(default=Answer(after=held)) as slow:
        Hook(told, slow, "agent.created")
        quick = Hook(told, receiver, "agent.created")
        for number in range(30):
            told.agent(f"number {number}")
        quick.told("agent.created", 30)
        assert 1 <= len(slow.got) <= 4
        held.set()
        slow.wait(30)
