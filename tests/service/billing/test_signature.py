"""Who may tell of payments: the provider alone, lately, and where a secret is set (decisions §11)."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.provider import SECRET, deliver, event, seconds, signed, subscription
from support.serving import environment, run_serve
from support.shapes import complaints, nothing_inside, refused
from support.tables import rows

PATH = "/billing/provider-events"


def body_of(customer: str) -> str:
    return json.dumps(event("customer.subscription.created", subscription(customer)))


def untouched(gateway: LiveGateway, owner: Owner) -> bool:
    """Whether an organization is still free, without a subscription, and no event of its customer is known."""
    query = "SELECT count(*) FROM provider_events e JOIN organizations o ON o.provider_customer_id = e.provider_customer_id WHERE o.id = ?"
    [(events,)] = rows(gateway, query, owner.user["organization_id"])
    plan = owner.http.get("/api/organization").json()["plan"]
    return (plan, events, owner.http.get("/api/billing/subscription").status_code) == ("free", 0, 404)


def test_without_a_secret_there_is_no_such_path(anyone: httpx.Client) -> None:
    """A gateway that was told no secret answers 404, whatever is sent, with whatever method (decisions §3)."""
    body = body_of("cus_x")
    refused(anyone.post(PATH, content=body, headers=signed(body)), 404, "Not Found")
    refused(anyone.get(PATH), 404, "Not Found")


FORGED = {
    "none": {},
    "empty": {"Stripe-Signature": ""},
    "nonsense": {"Stripe-Signature": "let me in"},
    "no timestamp": {"Stripe-Signature": "v1=00"},
    "huge timestamp": {"Stripe-Signature": f"t={'9' * 5000},v1=00"},
    "other letters": {"Stripe-Signature": "t=1,v1=\u00fc".encode("latin-1").decode("latin-1")},
    "other scheme": {"Stripe-Signature": f"t={seconds()},v0=00"},
}


@pytest.mark.parametrize("headers", FORGED.values(), ids=FORGED)
def test_a_forged_event_changes_nothing(
    billing: LiveGateway, payer: Owner, customer: str, headers: dict[str, str]
) -> None:
    """400 with a detail that names the header and no secret, for every kind of wrong signature."""
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = httpx.post(f"{billing.url}{PATH}", content=body_of(customer), headers=raw, timeout=30)
    assert answer.status_code == 400
    assert "Stripe-Signature" in answer.json()["detail"]
    assert SECRET not in answer.text
    nothing_inside(answer)
    assert untouched(billing, payer)


def test_another_secret_signs_nothing(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """An event signed with another secret is refused."""
    body = body_of(customer)
    headers = signed(body, secret="whsec_of_somebody_else")
    assert httpx.post(f"{billing.url}{PATH}", content=body, headers=headers, timeout=30).status_code == 400
    assert untouched(billing, payer)


def test_a_signature_is_for_one_body(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """One byte more, or another customer, is refused."""
    body = body_of("cus_of_another")
    for changed in (body + " ", body_of(customer)):
        answer = httpx.post(f"{billing.url}{PATH}", content=changed, headers=signed(body), timeout=30)
        assert answer.status_code == 400
    assert untouched(billing, payer)


@pytest.mark.parametrize(("age", "status"), [(310, 400), (240, 200)])
def test_a_signature_is_good_for_five_minutes(
    billing: LiveGateway, customer: str, age: int, status: int
) -> None:
    """A captured delivery cannot be sent again later."""
    body = body_of(customer)
    headers = signed(body, at=seconds() - age)
    answer = httpx.post(f"{billing.url}{PATH}", content=body, headers=headers, timeout=30)
    assert answer.status_code == status


def test_the_raw_body_is_what_is_signed(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """Spaces, escapes and order of the JSON text do not matter, as long as they are what was signed."""
    told = event("customer.subscription.created", subscription(customer))
    body = json.dumps(told, indent=3, sort_keys=True)
    answer = httpx.post(f"{billing.url}{PATH}", content=body, headers=signed(body), timeout=30)
    assert answer.json() == {"received": True, "outcome": "applied", "detail": None}
    assert payer.http.get("/api/organization").json()["plan"] == "pro"


def test_bytes_that_are_no_text_are_refused(billing: LiveGateway) -> None:
    """What is not UTF-8 cannot have been signed."""
    headers = signed("x") | {"Content-Encoding": "gzip"}
    answer = httpx.post(
        f"{billing.url}{PATH}", content=gzip.compress(b"\xff\xfe"), headers=headers, timeout=30
    )
    assert answer.status_code == 400
    nothing_inside(answer)


def test_the_other_mode_is_acknowledged_and_ignored(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """An event of the provider's test mode gets a 200, so that it is not sent again, which names the setting."""
    told = event("customer.subscription.created", subscription(customer), livemode=False)
    answer = deliver(billing.url, told)
    assert answer.status_code == 200
    assert answer.json()["outcome"] == "ignored"
    assert "TOOLGATE_PROVIDER_LIVEMODE" in answer.json()["detail"]
    assert untouched(billing, payer)


def test_an_unknown_kind_is_acknowledged_and_ignored(billing: LiveGateway, customer: str) -> None:
    """The provider has hundreds of kinds, and their objects any shape."""
    answer = deliver(billing.url, event("charge.succeeded", {"id": "ch_1", "customer": customer, "odd": [1]}))
    assert (answer.status_code, answer.json()["outcome"]) == (200, "ignored")


MALFORMED = {
    "no id": ({"id": None}, {}, "id"),
    "no time": ({"created": "today"}, {}, "created"),
    "a mode in words": ({"livemode": "true"}, {}, "livemode"),
    "no data": ({"data": {}}, {}, "data.object"),
    "no customer": ({}, {"customer": None}, "data.object.customer"),
    "no status": ({}, {"status": 5}, "data.object.status"),
    "a time beyond time": ({}, {"trial_end": 10**15}, "data.object.trial_end"),
    "a long id": ({}, {"id": "s" * 256}, "data.object.id"),
}


@pytest.mark.parametrize(("outer", "inner", "field"), MALFORMED.values(), ids=MALFORMED)
def test_a_signed_event_of_another_shape_is_refused_by_field(
    billing: LiveGateway,
    payer: Owner,
    customer: str,
    outer: dict[str, object],
    inner: dict[str, object],
    field: str,
) -> None:
    """What the gateway cannot read is a 400 that names the field, and changes nothing."""
    told = event("customer.subscription.created", subscription(customer) | inner) | outer
    assert field in complaints(deliver(billing.url, told))
    assert untouched(billing, payer)


@pytest.mark.parametrize("body", ["", "[]", "null", '{"id": "a", "id": "b"}', "{"])
def test_a_signed_body_that_is_no_object_is_refused(billing: LiveGateway, body: str) -> None:
    """400 under `body`."""
    answer = httpx.post(f"{billing.url}{PATH}", content=body, headers=signed(body), timeout=30)
    assert list(complaints(answer)) == ["body"]


def test_a_blank_secret_stops_the_start(tmp_path: Path) -> None:
    """Anybody could sign with it."""
    ended = run_serve(tmp_path, extra={"TOOLGATE_STRIPE_WEBHOOK_SECRET": " "})
    assert ended.returncode == 1
    assert "TOOLGATE_STRIPE_WEBHOOK_SECRET" in ended.stderr


WITHOUT_STRIPE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "stripe":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["toolgate", "serve", "--port", "0"]
from toolgate_cli import main
main()
"""


def test_a_secret_without_the_extra_stops_the_start(tmp_path: Path) -> None:
    """One line names the setting and what to install, and nothing is created."""
    home = tmp_path / "home"
    home.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_STRIPE],
        env=environment(home, {"TOOLGATE_STRIPE_WEBHOOK_SECRET": SECRET}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "TOOLGATE_STRIPE_WEBHOOK_SECRET" in line
    assert "pip install 'toolgate[billing]'" in line
    assert SECRET not in line
    assert list(home.iterdir()) == []
