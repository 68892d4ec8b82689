"""Public paths of a transparency log."""

import pytest
from support.gateway import Owner


@pytest.mark.parametrize(
    "position",
    ["", "1", "x000/001", "000.p/0", "000/", "a%0Ab", "%0A000", "x036/x028/x797/x018/x963/967"],
)
def test_invalid_position_is_not_found_and_counted(acme: Owner, position: str) -> None:
    log = f"/tlog/{acme.user['organization_id']}/production"
    answer = acme.http.get(f"{log}/tile/entries/{position}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Tile not found")
    assert "X-RateLimit-Remaining" in answer.headers
    answer = acme.http.get(f"{log}/tile/0/{position}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Tile not found")
