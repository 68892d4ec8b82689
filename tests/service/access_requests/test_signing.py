"""Keys of binding tokens during a rotation of the gateway's secret."""

from datetime import UTC, datetime, timedelta

import pytest

from toolgate_service.access_requests.signing import InvalidToken, Signer
from toolgate_service.core.crypto import Vault

URL = "https://toolgate.example.com"
FORMER, CURRENT = b"the former secret, long enough", b"the current secret, long enough"
MOMENT = datetime(2026, 11, 28, tzinfo=UTC)


def signer(vault: Vault) -> Signer:
    return Signer(vault.access_request_keys, URL)


def token(of: Signer) -> str:
    return of.sign({"approval_id": "a"}, issued=MOMENT, expires=MOMENT + timedelta(minutes=10))


def test_gateways_with_the_same_secret_have_the_same_keys() -> None:
    first, second = (signer(Vault(CURRENT)) for _ in range(2))
    assert first.key_set() == second.key_set()
    assert second.verify(token(first))["approval_id"] == "a"


def test_tokens_of_the_former_secret_are_accepted_during_a_rotation() -> None:
    former, rotating = signer(Vault(FORMER)), signer(Vault(CURRENT, FORMER, believed=(FORMER,)))
    assert rotating.verify(token(former))["approval_id"] == "a"
    former_key, current_key = former.key_set()["keys"][0], signer(Vault(CURRENT)).key_set()["keys"][0]
    assert rotating.key_set()["keys"] == [current_key, former_key]


def test_new_tokens_are_signed_with_the_current_secret() -> None:
    rotating = signer(Vault(CURRENT, FORMER, believed=(FORMER,)))
    assert signer(Vault(CURRENT)).verify(token(rotating))
    with pytest.raises(InvalidToken):
        signer(Vault(FORMER)).verify(token(rotating))


def test_tokens_of_a_leaked_secret_are_rejected() -> None:
    leaked = signer(Vault(CURRENT, FORMER))
    with pytest.raises(InvalidToken):
        leaked.verify(token(signer(Vault(FORMER))))
    assert len(leaked.key_set()["keys"]) == 1


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "[" * 10_000, "eyJhbGciOiJub25lIn0.e30."])
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidToken):
        signer(Vault(CURRENT)).verify(text)
