"""The metadata document."""

from collections.abc import Iterator

import httpx
import pytest
from support.authzen import METADATA
from support.gateway import LiveGateway

from toolgate_service.authzen.metadata import CAPABILITIES

PUBLIC = "https://pdp.example.com"
NAMES = {
    "access_evaluation_endpoint": "/access/v1/evaluation",
    "access_evaluations_endpoint": "/access/v1/evaluations",
    "search_subject_endpoint": "/access/v1/search/subject",
    "search_resource_endpoint": "/access/v1/search/resource",
    "search_action_endpoint": "/access/v1/search/action",
    "access_request_endpoint": "/access/v1/requests",
    "jwks_uri": "/access/v1/jwks",
}


def expected(base: str) -> dict[str, object]:
    urls: dict[str, object] = {name: base + path for name, path in NAMES.items()}
    return {"policy_decision_point": base, "capabilities": list(CAPABILITIES)} | urls


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    env = {"TOOLGATE_PUBLIC_URL": f"{PUBLIC}/"}
    with LiveGateway(tmp_path_factory.mktemp("public"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def below_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    env = {"TOOLGATE_PUBLIC_URL": f"{PUBLIC}/tools/gate"}
    with LiveGateway(tmp_path_factory.mktemp("path"), env=env) as gateway:
        yield gateway


def test_metadata_must_be_a_json_object_with_status_200(anyone: httpx.Client) -> None:
    answer = anyone.get(METADATA)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.headers["Cache-Control"] == "max-age=300"


def test_parameters_without_values_must_be_omitted(anyone: httpx.Client) -> None:
    document = anyone.get(METADATA).json()
    assert document.keys() == {"policy_decision_point", "capabilities", *NAMES}
    assert all(document.values())


def test_policy_decision_point_must_be_the_public_url(behind_proxy: LiveGateway) -> None:
    """The URL is https, has no query or fragment, and does not depend on the request."""
    for headers in ({}, {"Host": "attacker.example.com"}, {"X-Forwarded-Host": "attacker.example.com"}):
        assert httpx.get(behind_proxy.url + METADATA, headers=headers).json() == expected(PUBLIC)


def test_policy_decision_point_without_public_url_is_the_url_of_the_request(
    gateway: LiveGateway, anyone: httpx.Client
) -> None:
    assert anyone.get(METADATA).json() == expected(gateway.url)


def test_well_known_path_must_precede_the_path_of_the_public_url(below_path: LiveGateway) -> None:
    answer = httpx.get(f"{below_path.url}{METADATA}/tools/gate")
    assert answer.json() == expected(f"{PUBLIC}/tools/gate")


@pytest.mark.parametrize("path", ["/tools", "/tools/gate/x", "/other", "/"])
def test_metadata_of_another_path_does_not_exist(below_path: LiveGateway, path: str) -> None:
    assert httpx.get(f"{below_path.url}{METADATA}{path}").status_code == 404


def test_metadata_below_a_path_does_not_exist_without_one(
    behind_proxy: LiveGateway, anyone: httpx.Client
) -> None:
    assert httpx.get(f"{behind_proxy.url}{METADATA}/tenant").status_code == 404
    assert anyone.get(f"{METADATA}/tenant").status_code == 404


def test_metadata_must_be_queried_with_get(anyone: httpx.Client) -> None:
    assert anyone.post(METADATA).status_code == 405
    assert anyone.head(METADATA).status_code == 200


def test_request_id_of_a_metadata_request_is_returned(anyone: httpx.Client) -> None:
    assert anyone.get(METADATA, headers={"X-Request-ID": "m-1"}).headers["X-Request-ID"] == "m-1"


def test_endpoints_of_the_metadata_exist(anyone: httpx.Client) -> None:
    for name in NAMES.keys() - {"jwks_uri"}:
        assert anyone.post(anyone.get(METADATA).json()[name], json={}).status_code == 401
