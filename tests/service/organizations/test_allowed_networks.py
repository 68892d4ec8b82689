"""GET and PUT /api/organization/allowed-networks, and where API keys then work (spec §5)."""

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from support.console import Reader, text_of
from support.crowd import meanwhile, together
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, rows, set_plan
from support.raw import Raw
from support.shapes import complaints, problem, refused
from support.team import Colleague

from toolgate_service.organizations.repository import key_digest

PATH = "/api/organization/allowed-networks"
WITHIN, OUTSIDE = "203.0.113.9", "198.51.100.1"
NETWORKS = ["203.0.113.0/24", "2001:db8::/32"]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway behind a proxy on this machine: a test says from where its request comes."""
    env = {"TOOLGATE_TRUSTED_PROXIES": "127.0.0.1"}
    with LiveGateway(tmp_path_factory.mktemp("proxied"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def bound(proxied: LiveGateway) -> Iterator[Owner]:
    """An organization whose keys are bound to networks."""
    with Owner(proxied.url) as owner:
        assert put(owner, NETWORKS).json() == {"networks": NETWORKS}
        yield owner


@pytest.fixture(scope="module")
def agent(bound: Owner) -> str:
    """An agent that may pay, and ask whether it may drop."""
    agent = bound.agent()
    bound.permit(agent, "pay")
    bound.permit(agent, "drop", requires_approval=True)
    return agent


def put(owner: Owner, networks: object) -> httpx.Response:
    return owner.http.put(PATH, json={"networks": networks})


def told(address: str) -> str:
    return (
        f"API keys of this organization may not be used from {address!r}, which is in none of the allowed networks; use "
        "one of these networks, or ask an admin to allow the address with PUT /api/organization/allowed-networks"
    )


def head(path: str, key: str, address: str, body: bytes, *headers: bytes) -> bytes:
    """A whole request that a proxy passes on."""
    lines = (
        b"POST " + path.encode() + b" HTTP/1.1",
        b"Host: gateway",
        b"Content-Length: %d" % len(body),
        b"X-API-Key: " + key.encode(),
        b"X-Forwarded-For: " + address.encode(),
        *headers,
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


USUAL = (b"Content-Encoding: identity",)


@pytest.mark.parametrize("road", [(), USUAL], ids=["at-once", "usual"])
@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log", "/sdk/logs"])
def test_a_key_works_only_from_within(bound: Owner, agent: str, path: str, road: tuple[bytes, ...]) -> None:
    """On either road, whichever address family: 200 within; outside 403 with the address, and nothing happens."""
    action = f"where{path.replace('/', '.')}.{len(road)}"
    entry: dict[str, Any] = {"agent_id": agent, "action": action, "status": "success"}
    body = json.dumps({"entries": [entry]} if path == "/sdk/logs" else entry).encode()
    with Raw(bound.url) as raw:
        for address in (WITHIN, "::ffff:203.0.113.1", "2001:db8::5", f"6.6.6.6, {WITHIN}"):
            assert raw.send(head(path, bound.key, address, body, *road)).answer().status == 200
        logged = len(bound.entries(action=action))
        for address in (OUTSIDE, "2001:db9::5", f"{WITHIN}, {OUTSIDE}"):
            answer = raw.send(head(path, bound.key, address, body, *road)).answer()
            seen = address.split(", ")[-1]
            assert (answer.status, answer.json()) == (403, problem(403, told(seen)))
            assert int(answer.headers["x-ratelimit-remaining"]) > 0
        # Without the header it is the proxy itself that asks.
        answer = raw.send(head(path, bound.key, "nonsense", body, *road)).answer()
        assert (answer.status, answer.json()) == (403, problem(403, told("127.0.0.1")))
    assert len(bound.entries(action=action)) == logged == (0 if path == "/sdk/check" else 4)


def test_every_key_is_bound_on_every_path(proxied: LiveGateway, bound: Owner, agent: str) -> None:
    """An agent's own key and the one to test too; wherever agents ask, with or without an approval."""
    own = bound.http.post(f"/api/agents/{agent}/keys").json()["api_key"]
    from_within, from_outside = {"X-Forwarded-For": WITHIN}, {"X-Forwarded-For": OUTSIDE}
    held = bound.http.post(
        "/sdk/check",
        json={"agent_id": agent, "action": "drop"},
        headers={"X-API-Key": own} | from_within,
    ).json()["approval_id"]
    asked = (
        ("POST", "/sdk/check"),
        ("POST", "/sdk/log"),
        ("POST", "/sdk/logs"),
        ("GET", f"/sdk/permissions?agent_id={agent}"),
        ("GET", f"/sdk/approvals/{held}"),
        ("POST", f"/sdk/approvals/{held}/cancel"),
    )
    for key in (bound.key, own, key_to_test(proxied, bound)):
        for method, path in asked:
            answer = bound.http.request(method, path, headers={"X-API-Key": key} | from_outside)
            refused(answer, 403, told(OUTSIDE))
    # What is wrong with a body, or unknown, is told to nobody outside; a wrong key is a wrong key everywhere.
    answer = bound.http.post("/sdk/check", content=b"{", headers={"X-API-Key": own} | from_outside)
    refused(answer, 403, told(OUTSIDE))
    answer = bound.http.post("/sdk/check", headers={"X-API-Key": "ak_wrong"} | from_outside)
    refused(answer, 401, "Invalid API key")
    answer = bound.http.get(f"/sdk/approvals/{held}", headers={"X-API-Key": own} | from_within)
    assert answer.json()["status"] == "pending"


def test_people_are_not_bound(bound: Owner) -> None:
    """Whoever signs in may do so from anywhere, so that a wrong list is mended by those whom it locks out."""
    answer = bound.http.get(PATH, headers={"X-Forwarded-For": OUTSIDE})
    assert (answer.status_code, answer.json()) == (200, {"networks": NETWORKS})


def test_without_a_list_keys_work_everywhere(proxied: LiveGateway) -> None:
    """That is how an organization begins, and what an empty list says."""
    with Owner(proxied.url) as owner:
        agent = owner.agent()
        for networks in (None, NETWORKS, []):
            if networks is not None:
                assert put(owner, networks).json() == {"networks": networks}
            owner.http.headers["X-Forwarded-For"] = OUTSIDE
            assert owner.check(agent, "pay").status_code == (403 if networks else 200)
        assert owner.http.get(PATH).json() == {"networks": []}


def test_a_list_is_kept_canonical_and_audited(proxied: LiveGateway) -> None:
    """What is answered is what is compared; the entry says who, from where, and what it is now."""
    with Owner(proxied.url) as owner:
        answer = owner.http.put(
            PATH,
            json={"networks": ["10.0.0.0/255.0.0.0", "::ffff:192.0.2.1", "192.0.2.1"]},
            headers={"X-Forwarded-For": WITHIN},
        )
        assert answer.json() == owner.http.get(PATH).json() == {"networks": ["10.0.0.0/8", "192.0.2.1"]}
        [entry] = owner.http.get("/api/audit", params={"kind": "organization.networks_changed"}).json()
        assert entry["changes"] == {"networks": ["10.0.0.0/8", "192.0.2.1"]}
        assert (entry["user_id"], entry["ip_address"]) == (owner.user["id"], WITHIN)


@pytest.mark.one_process("each gateway tells once a minute")
def test_a_use_from_elsewhere_is_audited_and_fills_nothing(proxied: LiveGateway) -> None:
    """The admin reads which key was used and from where: once a minute, however often it is tried and by how many."""
    with Owner(proxied.url) as owner:
        agent = owner.agent()
        put(owner, NETWORKS)
        headers = {"X-API-Key": owner.key, "X-Forwarded-For": OUTSIDE}
        body = {"agent_id": agent, "action": "pay"}
        ask = partial(httpx.post, f"{owner.url}/sdk/check", json=body, headers=headers, timeout=30)
        for answer in together(*[ask] * 8):
            refused(answer, 403, told(OUTSIDE))
        [entry] = owner.http.get("/api/audit", params={"kind": "organization.key_used_elsewhere"}).json()
        assert (entry["ip_address"], entry["user_id"], entry["changes"]) == (OUTSIDE, None, None)
        [(key,)] = rows(proxied, "SELECT id FROM api_keys WHERE digest = ?", key_digest(owner.key))
        assert entry["resource_id"] == key
        owner.http.headers["X-Forwarded-For"] = WITHIN
        assert owner.check(agent, "pay").status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"networks": ["10.0.0.1/8"]}, "networks"),
        ({"networks": ["office"]}, "networks"),
        ({"networks": [f"10.0.{number}.1" for number in range(101)]}, "networks"),
        ({"networks": ["10.0.0.1"] * 101}, "networks"),
        ({"networks": None}, "networks"),
        ({"networks": "10.0.0.0/8"}, "networks"),
        ({"networks": [1]}, "networks.0"),
        ({}, "networks"),
        ({"networks": [], "more": 1}, "more"),
    ],
)
def test_what_is_no_list_of_networks_changes_nothing(
    bound: Owner, body: dict[str, object], field: str
) -> None:
    """400 names the field, and the list is as before."""
    assert list(complaints(bound.http.put(PATH, json=body))) == [field]
    assert bound.http.get(PATH).json() == {"networks": NETWORKS}


@pytest.mark.parametrize("plan", ["free", "pro", "business"])
def test_a_plan_without_it_is_told(proxied: LiveGateway, plan: str) -> None:
    """It is the enterprise plan's. What was set before a downgrade still binds, until somebody removes it."""
    with Owner(proxied.url) as owner:
        agent = owner.agent()
        put(owner, NETWORKS)
        set_plan(proxied, owner, plan)
        assert owner.check(agent, "pay").status_code == 403
        answer = put(owner, [WITHIN])
        assert answer.status_code == 403
        assert answer.json()["detail"] == {
            "error": "feature_not_available",
            "feature": "ip_allow_list",
            "message": f"The {plan} plan does not include ip_allow_list",
            "current_plan": plan,
            "upgrade_url": "/console/plan",
        }
        assert owner.http.get(PATH).json() == {"networks": NETWORKS}
        assert put(owner, []).status_code == 200
        assert owner.check(agent, "pay").status_code == 200


def test_a_wait_under_way_ends_with_the_change(proxied: LiveGateway) -> None:
    """Whoever waits from outside for a decision is refused at the next look, and does not learn the decision."""
    with Owner(proxied.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "drop", requires_approval=True)
        held = owner.check(agent, "drop").json()["approval_id"]
        headers = {"X-API-Key": owner.key, "X-Forwarded-For": OUTSIDE}
        began = time.monotonic()
        wait = partial(owner.http.get, f"/sdk/approvals/{held}", params={"wait": "25"}, headers=headers)
        *answers, _ = together(*[wait] * 4, partial(put, owner, NETWORKS))
        assert time.monotonic() - began < 15
        for answer in answers:
            refused(answer, 403, told(OUTSIDE))


def test_a_change_holds_for_the_very_next_check(proxied: LiveGateway) -> None:
    """Many times in a row, and beside clients that go on asking: no answer lags behind the change's 200."""
    with Owner(proxied.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "pay")
        owner.http.headers["X-Forwarded-For"] = OUTSIDE

        def ask(enough: threading.Event) -> None:
            with httpx.Client(base_url=owner.url, headers={"X-API-Key": owner.key}) as client:
                while not enough.is_set():
                    answer = client.post("/sdk/check", json={"agent_id": agent, "action": "pay"})
                    assert answer.status_code in {200, 403}

        with meanwhile([ask, ask]):
            for _ in range(10):
                for networks, status in ((NETWORKS, 403), ([*NETWORKS, OUTSIDE], 200), ([], 200)):
                    assert put(owner, networks).status_code == 200
                    assert owner.check(agent, "pay").status_code == status


def test_the_console_sets_it(proxied: LiveGateway, bound: Owner) -> None:
    """One network a line; what is wrong is said and stays typed; members read, and plans without it show nothing."""
    with Owner(proxied.url) as owner, Reader.of(owner.url, owner.email) as reader:
        way = "/console/settings/networks"
        assert "The API keys work from all networks" in text_of(reader.page("/console/settings"))
        wrong = reader.submit(way, token=reader.token(), networks="203.0.113.0/24\r\n10.0.0.1/8")
        assert wrong.status_code == 400
        assert "write '10.0.0.0/8' for the network" in text_of(wrong.text)
        assert ">\n203.0.113.0/24\r\n10.0.0.1/8</textarea>" in wrong.text
        assert owner.http.get(PATH).json() == {"networks": []}
        good = reader.submit(way, token=reader.token(), networks="203.0.113.0/24\r\n\r\n 2001:db8::/32 ")
        assert good.status_code == 303
        assert owner.http.get(PATH).json() == {"networks": NETWORKS}
        page = reader.page("/console/settings")
        assert ">\n203.0.113.0/24\n2001:db8::/32</textarea>" in page
        assert "Your address is 127.0.0.1" in text_of(page)
        assert reader.submit(way, networks="").status_code == 403
        with Colleague(owner, "member") as colleague, Reader.of(owner.url, colleague.email) as member:
            assert "203.0.113.0/24, 2001:db8::/32" in text_of(member.page("/console/settings"))
            assert member.submit(way, token=member.token(), networks="").status_code == 403
        set_plan(proxied, owner, "free")
        assert "apply until you remove them" in text_of(reader.page("/console/settings"))
        assert reader.submit(way, token=reader.token(), networks="").status_code == 303
        assert "Allowed networks" not in reader.page("/console/settings")
