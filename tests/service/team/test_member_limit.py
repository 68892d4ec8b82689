"""The plan's team members (spec §8, decisions §3, §7)."""

from collections import Counter
from functools import partial

from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.shapes import refused
from support.team import accept, invite, token_of


def limit(used: int, limit: int, plan: str) -> dict[str, str]:
    return {
        "error": "plan_limit_exceeded",
        "message": f"The {plan} plan's limit of team_members is reached: {used}/{limit} used",
        "limit_type": "team_members",
        "current_plan": plan,
        "upgrade_url": "/console/plan",
    }


def give_plan(gateway: LiveGateway, owner: Owner, plan: str) -> None:
    organization = owner.user["organization_id"]
    assert execute(gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization) == 1


def test_the_free_plan_has_its_admin_alone(frugal: Owner) -> None:
    """A first invitation on the free plan is 403 with the limit object."""
    refused(invite(frugal), 403, limit(1, 1, "free"))
    assert frugal.http.get("/api/team").json()["invitations"] == []


def test_parallel_invitations_stay_within_the_plan(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Of ten simultaneous invitations on the pro plan four succeed: five members, one of them there already."""
    give_plan(free_gateway, frugal, "pro")
    answers = together(*[partial(invite, frugal)] * 10)
    assert Counter(answer.status_code for answer in answers) == {201: 4, 403: 6}
    refused(invite(frugal), 403, limit(5, 5, "pro"))


def test_parallel_acceptances_stay_within_the_plan(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Invited on a larger plan and accepted at once on a smaller, only as many join as the smaller one has."""
    give_plan(free_gateway, frugal, "business")
    tokens = [token_of(invite(frugal)) for _ in range(8)]
    give_plan(free_gateway, frugal, "pro")
    answers = together(*[partial(accept, frugal.url, token) for token in tokens])
    assert Counter(answer.status_code for answer in answers) == {200: 4, 403: 4}
    assert len(frugal.http.get("/api/team").json()["users"]) == 5
    [loser] = [tokens[i] for i, answer in enumerate(answers) if answer.status_code == 403][:1]
    refused(accept(frugal.url, loser), 403, limit(5, 5, "pro"))
    give_plan(free_gateway, frugal, "business")
    assert accept(frugal.url, loser).status_code == 200, "the refusal used nothing up"


def test_what_is_taken_back_makes_room(free_gateway: LiveGateway, frugal: Owner) -> None:
    """A revoked invitation and a removed member count no more; a replaced invitation counts once."""
    give_plan(free_gateway, frugal, "pro")
    invitations = [invite(frugal) for _ in range(4)]
    assert invite(frugal, invitations[0].json()["email"]).status_code == 201
    assert frugal.http.delete(f"/api/team/invitations/{invitations[1].json()['id']}").status_code == 204
    assert invite(frugal).status_code == 201
    joined = accept(frugal.url, token_of(invitations[2])).json()["user"]["id"]
    assert invite(frugal).status_code == 403
    assert frugal.http.delete(f"/api/team/{joined}").status_code == 204
    assert invite(frugal).status_code == 201
