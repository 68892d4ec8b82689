"""Policies that are applied at the same time."""

from support.crowd import together
from support.gateway import Owner
from support.policies import POLICY, apply, current, plan


def test_one_of_two_concurrent_applies_wins(acme: Owner) -> None:
    apply(acme, POLICY)
    base = current(acme)["digest"]
    candidates = [POLICY | {"rules": []}, POLICY | {"budgets": []}]

    def send(number: int) -> tuple[int, str]:
        with acme.login() as http:
            answer = http.post("/api/policy/apply", json={"policy": candidates[number], "base": base})
        return answer.status_code, answer.text

    answers = together(lambda: send(0), lambda: send(1))
    assert sorted(status for status, _ in answers) == [200, 409]
    [winner] = [number for number, (status, _) in enumerate(answers) if status == 200]
    [refused] = [text for status, text in answers if status == 409]
    assert ("delete budget" if winner else "delete rule") in refused
    assert plan(acme, candidates[winner])["changes"] == []
