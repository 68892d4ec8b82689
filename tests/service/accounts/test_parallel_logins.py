"""The bounded pool of password checks, under many logins at once (decisions §7)."""

from collections import Counter
from pathlib import Path

import httpx
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner


def test_logins_beyond_the_queue_are_told_to_come_again(tmp_path: Path) -> None:
    """Of thirty at once a pool of one with room for two lets some in and refuses the rest before hashing; then all is well."""
    env = {"TOOLGATE_LOGIN_THREADS": "1", "TOOLGATE_LOGIN_QUEUE": "2"}
    with LiveGateway(tmp_path, env=env, cheap_passwords=False) as gateway, Owner(gateway.url) as owner:
        body = {"email": owner.email, "password": PASSWORD}

        def login() -> httpx.Response:
            return httpx.post(f"{gateway.url}/auth/login", json=body, timeout=30)

        answers = together(*[login] * 30)
        told = Counter(answer.status_code for answer in answers)
        assert set(told) == {200, 429}
        assert told[200] >= 3, "the pool's places are used"
        for answer in answers:
            if answer.status_code == 429:
                assert answer.json()["detail"] == "Too many logins at the same time; retry after 2 seconds"
                assert answer.headers["Retry-After"] == "2"
        assert owner.http.get("/auth/me").status_code == 200, "a full pool holds up nobody who is logged in"
        assert login().status_code == 200
