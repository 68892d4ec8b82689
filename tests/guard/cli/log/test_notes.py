"""Signed notes, checkpoints and cosignatures."""

from base64 import b64encode

import pytest
from support.transparency import Signer, mth

from toolgate_cli.log.verification.notes import Key, VerificationError, open_checkpoint, open_note

LEAVES = [f"entry {index}".encode() for index in range(300)]
NAME = "toolgate.example.com/log/acme/production"
VKEY = f"{NAME}+ef7b9daa+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
CHECKPOINT = f"""\
{NAME}
300
yjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=

— {NAME} 73udqoagLJ7tE1uIiS598bVyMBYXnwyIhp/8RQ4LAmyxjmhFBUvs+aNRGrCv2Aj96fcankC3iMhoquAzNiIjTnPk0QE=
"""
#: the example of golang.org/x/mod/sumdb/note
EXAMPLE = """\
If you think cryptography is the answer to your problem,
then you don't know what your problem is.

— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=
"""
EXAMPLE_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"

SIGNER = Signer(NAME, bytes(range(32)))
KEY = Key.parse(SIGNER.vkey)
TEXT = CHECKPOINT.partition("\n\n")[0] + "\n"


def test_published_example_is_verified() -> None:
    text, signed = open_note(EXAMPLE, [Key.parse(EXAMPLE_VKEY)])
    assert text.endswith("your problem is.\n")
    assert signed == {EXAMPLE_VKEY: 0}
    with pytest.raises(VerificationError, match="signature of 'PeterNeumann' is invalid"):
        open_note(EXAMPLE.replace("answer", "solution"), [Key.parse(EXAMPLE_VKEY)])


def test_checkpoint_of_the_test_vector_is_verified() -> None:
    assert SIGNER.vkey == VKEY
    assert SIGNER.checkpoint(LEAVES) == CHECKPOINT
    checkpoint = open_checkpoint(CHECKPOINT, Key.parse(VKEY))
    assert (checkpoint.origin, checkpoint.size, checkpoint.root) == (NAME, 300, mth(LEAVES))


def test_unknown_signatures_are_ignored() -> None:
    """Also those with the name of a known key, and those of unknown algorithms."""
    lines = [
        Signer(f"witness-{index}.example", bytes([index]) * 32, 4).line(TEXT, index) for index in range(20)
    ]
    lines.append(Signer(NAME, bytes(32)).line(TEXT))
    lines.append(f"— pq.example {b64encode(bytes(2420)).decode()}\n")
    checkpoint = open_checkpoint(f"{TEXT}\n{''.join(lines)}{SIGNER.line(TEXT)}", KEY)
    assert (checkpoint.size, checkpoint.witnesses) == (300, {})


def test_cosignatures_of_given_witnesses_are_verified() -> None:
    witnesses = [Signer(f"witness-{index}.example", bytes([index]) * 32, 4) for index in range(3)]
    note = CHECKPOINT + witnesses[0].line(TEXT, 1_800_000_000) + witnesses[1].line(TEXT, 1_800_000_001)
    keys = [Key.parse(each.vkey) for each in witnesses]
    assert open_checkpoint(note, KEY, keys).witnesses == {
        "witness-0.example": 1_800_000_000,
        "witness-1.example": 1_800_000_001,
    }
    forged = CHECKPOINT + witnesses[0].line(TEXT.replace("300", "299"), 1_800_000_000)
    with pytest.raises(VerificationError, match=r"signature of 'witness-0\.example' is invalid"):
        open_checkpoint(forged, KEY, keys)


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        ("", "malformed note"),
        ("text", "malformed note"),
        (TEXT, "malformed note"),
        (f"{TEXT}\n", "malformed note"),
        (CHECKPOINT[:-1], "malformed note"),
        (CHECKPOINT + "\n", "malformed note"),
        (CHECKPOINT.replace("\n", "\r\n"), "malformed note"),
        (CHECKPOINT + "— x\n", "malformed signature"),
        (CHECKPOINT + "— x AAAA=\n", "malformed signature"),
        (CHECKPOINT + "— x AAAAAB==\n", "malformed signature"),
        (CHECKPOINT + "- x AAAAAAA=\n", "malformed signature"),
        (CHECKPOINT + "— x AAAAAAA=\n" * 200, "malformed note"),
        (CHECKPOINT + "— \ud800 AAAAAAA=\n", "control"),
        (f"{TEXT}\n{Signer('other.example', bytes(32)).line(TEXT)}", "no signature"),
        (f"{TEXT}\n{SIGNER.line('other')}", "is invalid"),
        (Signer("other.example", bytes(32)).checkpoint(LEAVES) + SIGNER.line("x"), "is invalid"),
    ],
)
def test_malformed_note_is_refused(note: str, reason: str) -> None:
    with pytest.raises(VerificationError, match=reason):
        open_checkpoint(note, KEY)


@pytest.mark.parametrize(
    "text",
    [
        "other.example\n300\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n",
        f"{NAME}\n",
        f"{NAME}\n300\n",
        f"{NAME}\n0300\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n",
        f"{NAME}\n-1\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n",
        f"{NAME}\n{'9' * 5000}\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n",
        f"{NAME}\n٣\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n",
        f"{NAME}\n300\nAAAA\n",
        f"{NAME}\n300\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eh=\n",
    ],
)
def test_malformed_checkpoint_with_a_valid_signature_is_refused(text: str) -> None:
    with pytest.raises(VerificationError, match="checkpoint"):
        open_checkpoint(f"{text}\n{SIGNER.line(text)}", KEY)


@pytest.mark.parametrize(
    "vkey",
    [
        "",
        "x",
        "x+y",
        "x+y+z",
        VKEY.replace("ef7b", "ef7c"),
        VKEY[:-4],
        VKEY.replace("log", "l g"),
        f"+{VKEY}",
        VKEY + "é",
    ],
)
def test_malformed_key_is_refused(vkey: str) -> None:
    with pytest.raises(VerificationError, match="invalid key"):
        Key.parse(vkey)


def test_key_of_another_algorithm_is_refused() -> None:
    with pytest.raises(VerificationError, match="Ed25519"):
        Key.parse(Signer("other.example", bytes(32), 6).vkey)
