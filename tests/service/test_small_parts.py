"""Identifiers, the clock, and the vault."""

import random
import re
import time
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.clock import from_wire, utcnow, wire
from toolgate_service.core.crypto import Vault
from toolgate_service.core.ids import new_id

PLACE = {"table": "ApiKey", "row": "1", "organization": "o"}
SECRET = b"a secret for tests, long enough"


def test_an_id_is_a_uuid_of_version_seven() -> None:
    """Version, variant and the milliseconds of its making (decisions §2)."""
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= after


def test_ids_do_not_repeat_and_sort_by_time() -> None:
    """Thousands at a moment are distinct; a later millisecond sorts later."""
    made = [new_id() for _ in range(5_000)]
    assert len(set(made)) == len(made)
    by_moment = [text[:13] for text in made]
    assert by_moment == sorted(by_moment)


def test_nobody_foresees_an_id() -> None:
    """The rest is the system's randomness: Python's own generator, set to where it was, does not repeat it."""

    def made() -> str:
        random.seed(7)
        return new_id()[19:]

    assert len({made() for _ in range(20)}) == 20


def test_the_rest_of_an_id_is_not_predictable() -> None:
    """All 74 bits beside time, version and variant change."""
    mask = ~(0xF << 76 | 0x3 << 62) & ((1 << 80) - 1)
    ones, zeros = 0, 0
    for _ in range(200):
        bits = uuid.UUID(new_id()).int & mask
        ones |= bits
        zeros |= ~bits & mask
    assert ones == zeros == mask


@given(
    st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
        min_value=datetime(1, 1, 2),  # noqa: DTZ001 - Hypothesis adds the zone
    )
)
def test_a_written_moment_reads_as_itself(moment: datetime) -> None:
    """UTC, microseconds, `Z`, four digits of a year, and nothing lost (decisions §2)."""
    text = wire(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert from_wire(text) == moment


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=5))
def test_written_moments_sort_as_moments_do(moments: list[datetime]) -> None:
    """SQLite compares the texts."""
    assert [wire(moment) for moment in sorted(moments)] == sorted(wire(moment) for moment in moments)


def test_now_is_aware() -> None:
    """A moment without a zone would be compared wrongly."""
    assert utcnow().tzinfo is UTC


def test_what_is_sealed_opens_at_its_place() -> None:
    """The same secret and place give the text back; no two seals are alike."""
    vault = Vault(SECRET)
    sealed = [vault.seal("ak_secret", **PLACE) for _ in range(2)]
    assert [Vault(SECRET).open(one, **PLACE) for one in sealed] == ["ak_secret"] * 2
    assert sealed[0] != sealed[1]
    assert b"ak_secret" not in sealed[0]


@pytest.mark.parametrize("changed", ["table", "row", "organization"])
def test_what_is_sealed_opens_nowhere_else(changed: str) -> None:
    """A ciphertext moved to another table, row or organization is worthless (decisions §9)."""
    vault = Vault(SECRET)
    assert vault.open(vault.seal("x", **PLACE), **PLACE | {changed: "other"}) is None


def test_another_secret_opens_nothing() -> None:
    """Nor does it sign the same tokens."""
    one, other = Vault(SECRET), Vault(SECRET + b"!")
    assert other.open(one.seal("x", **PLACE), **PLACE) is None
    assert one.token_keys[0] != other.token_keys[0]


def test_a_changed_ciphertext_does_not_open() -> None:
    """Any flipped bit is noticed, the version in front included, and so is a cut."""
    vault = Vault(SECRET)
    sealed = vault.seal("x", **PLACE)
    for position in range(len(sealed)):
        changed = bytearray(sealed)
        changed[position] ^= 1
        assert vault.open(bytes(changed), **PLACE) is None
    for length in range(len(sealed)):
        assert vault.open(sealed[:length], **PLACE) is None


def test_tokens_are_signed_with_another_key_than_secrets_are_sealed_with() -> None:
    """One label per purpose: the signing key is not the secret itself (decisions §9)."""
    assert Vault(SECRET).token_keys[0] != SECRET
    assert len(Vault(SECRET).token_keys[0]) == 32


def derived(label: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=label).derive(SECRET)


def test_a_secret_at_rest_is_sealed_as_decided() -> None:
    """A key version, twelve bytes of nonce, AES-256-GCM under a key of its own, table, row and organization beside it."""
    sealed = Vault(SECRET).seal("ak_secret", **PLACE)
    assert sealed[:1] == b"\x01"
    opened = AESGCM(derived(b"toolgate secrets at rest")).decrypt(sealed[1:13], sealed[13:], b"ApiKey/1/o")
    assert opened == b"ak_secret"


def test_every_purpose_has_a_label_of_its_own() -> None:
    """Tokens, cursors, failed logins and secrets at rest: four keys of one secret, none of them the secret."""
    vault = Vault(SECRET)
    keys = [vault.token_keys[0], vault.cursor_keys[0], vault.login_key, derived(b"toolgate secrets at rest")]
    assert len({*keys, SECRET}) == 5
    assert vault.token_keys[0] == derived(b"toolgate token signing")
    assert {len(key) for key in keys} == {32}
