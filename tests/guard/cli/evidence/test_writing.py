"""Archive files: the same content makes the same bytes."""

import json
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from toolgate_cli.evidence.archive import Entry, json_entry, text_entry, write_archive


def written(entries: list[Entry]) -> bytes:
    file = BytesIO()
    write_archive(file, entries, {"period": {}})
    return file.getvalue()


def test_order_of_the_entries_does_not_change_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    entries = [
        Entry("log/export.jsonl", "A file.", tmp_path / "large"),
        json_entry("b.json", "JSON.", {"name": "Zoë\u202e"}),
        text_entry("a.md", "Text.", "# Title\n\n"),
    ]
    archive = written(entries)
    assert archive == written(entries[::-1])
    with zipfile.ZipFile(BytesIO(archive)) as file:
        assert file.testzip() is None
        assert file.read("a.md") == b"# Title\n"
        assert file.read("b.json").isascii()
        sizes = {one["name"]: one["size"] for one in json.loads(file.read("manifest.json"))["files"]}
    assert sizes["log/export.jsonl"] == 3_000_000


def test_missing_file_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        written([Entry("a", "A file.", tmp_path / "missing")])
