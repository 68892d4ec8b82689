"""A file that gets its name when it is whole."""

import os
import stat
from pathlib import Path

import pytest
import typer

from toolgate_cli.logs import open_export


def test_it_appears_whole(tmp_path: Path) -> None:
    """Until the end of the block there is no file of that name; then its owner alone can read it."""
    path = tmp_path / "log.csv"
    with open_export(path, replace=False) as file:
        file.write(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, typer.Exit], ids=lambda one: one.__name__)
def test_what_fails_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    """Neither half a file nor a draft of one; the file that was there is there."""
    path = tmp_path / "log.csv"
    path.write_text("before")

    def begin() -> None:
        with open_export(path, replace=True) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        begin()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one that appears while it is written; --force replaces it."""
    path = tmp_path / "log.csv"
    with pytest.raises(typer.Exit), open_export(path, replace=False):
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"
    with pytest.raises(typer.Exit), open_export(path, replace=False):
        raise AssertionError("it is not even begun")
    assert capsys.readouterr().err.count("--force") == 2
    with open_export(path, replace=True) as file:
        file.write(b"ours")
    assert path.read_bytes() == b"ours"


def test_a_link_leads_to_its_file(tmp_path: Path) -> None:
    """The link stays, its file is replaced."""
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("before")
    link.symlink_to(real)
    with open_export(link, replace=True) as file:
        file.write(b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"


def test_what_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder, a pipe, a missing folder, a name with a zero byte: one line each, and nothing was written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    places = [tmp_path, pipe, tmp_path / "missing" / "log.csv", tmp_path / "a\0b", tmp_path / ("x" * 300)]
    for place in places:
        with pytest.raises(typer.Exit), open_export(place, replace=True):
            pass
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(places)
    assert all(line.startswith("toolgate: ") for line in lines)
    assert list(tmp_path.iterdir()) == [pipe]
