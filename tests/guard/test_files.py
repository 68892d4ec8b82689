import os
import stat
from pathlib import Path

import pytest

from toolgate._files import PrivateFileError, read_private, remove_private, write_private


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "toolgate" / "login.json"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_its_owners_alone(path: Path) -> None:
    """File and folder are for nobody else, whatever the umask allows; nothing else is left in the folder."""
    former = os.umask(0)
    try:
        write_private(path, b"one")
    finally:
        os.umask(former)
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    path.parent.chmod(0o755)
    write_private(path, b"two")
    assert (mode(path.parent), read_private(path)) == (0o700, b"two")
    assert list(path.parent.iterdir()) == [path]
    remove_private(path)
    remove_private(path)
    assert read_private(path) is None


@pytest.mark.parametrize("open_to", [0o640, 0o604, 0o620, 0o666])
def test_what_others_may_use_is_refused(path: Path, open_to: int) -> None:
    """A file that another user could have read or written is not used, and the line says what to do."""
    write_private(path, b"secret")
    path.chmod(open_to)
    with pytest.raises(PrivateFileError, match="log in again") as refusal:
        read_private(path)
    assert "secret" not in str(refusal.value)
    write_private(path, b"new")
    assert mode(path) == 0o600


def test_links_are_refused(path: Path, tmp_path: Path) -> None:
    """Neither a link in the file's place is followed, for reading or writing, nor one in the folder's."""
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    target.chmod(0o600)
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    with pytest.raises(PrivateFileError, match="symbolic link"):
        read_private(path)
    with pytest.raises(PrivateFileError, match="symbolic link"):
        write_private(path, b"x")
    assert target.read_bytes() == b"precious"
    path.unlink()
    path.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PrivateFileError, match="symbolic link"):
        write_private(path, b"x")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_no_file_is_refused(path: Path) -> None:
    """A pipe is not waited for, and a folder or an endless file not read."""
    path.parent.mkdir(parents=True)
    os.mkfifo(path, 0o600)
    with pytest.raises(PrivateFileError, match="not a regular file"):
        read_private(path)
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(PrivateFileError):
        read_private(path)
    path.rmdir()
    write_private(path, b"x" * 100_000)
    with pytest.raises(PrivateFileError, match="longer than"):
        read_private(path)


def test_a_failed_write_leaves_what_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk refuses, the former content stays and no draft is left behind."""
    write_private(path, b"former")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PrivateFileError, match="No space left"):
        write_private(path, b"new")
    assert read_private(path) == b"former"
    assert list(path.parent.iterdir()) == [path]
