"""Checkpoints are signed notes in the format of C2SP."""

import pytest

from toolgate_service.transparency.note import Checkpoint, Signer

ORIGIN = "toolgate.example.com/log/acme/production"
ROOT = bytes.fromhex("ca393d0296bec5e0b8dcab983bd1fb7d1461f512e7267cb89631ad26fd66d848")
SIGNER = Signer(ORIGIN, bytes(range(32)))
NOTE = f"""{ORIGIN}
300
yjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=

— {ORIGIN} 73udqoagLJ7tE1uIiS598bVyMBYXnwyIhp/8RQ4LAmyxjmhFBUvs+aNRGrCv2Aj96fcankC3iMhoquAzNiIjTnPk0QE=
"""


def test_a_note_has_the_bytes_of_the_published_vector() -> None:
    assert SIGNER.sign(Checkpoint(ORIGIN, 300, ROOT)) == NOTE


def test_a_verifier_key_has_the_text_of_the_published_vector() -> None:
    assert SIGNER.vkey == f"{ORIGIN}+ef7b9daa+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"


@pytest.mark.parametrize("origin", ["", "with space", "with+plus", "line\nbreak"])
def test_an_origin_that_a_note_cannot_contain_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="Invalid origin"):
        Signer(origin, bytes(32))
