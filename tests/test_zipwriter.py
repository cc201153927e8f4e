"""Archives that everything opens, told by what people open them with."""

from __future__ import annotations

import io
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from batches import zipwriter
from batches.zipwriter import Entry

AT = datetime(2026, 3, 2, 9, 30, 41, tzinfo=UTC)


def entry(path: str, content: bytes, *, at: datetime = AT) -> Entry:
    return Entry(path, len(content), at, lambda: iter([content[:7], content[7:]]))


ENTRIES = [
    entry("documents/Łukasz/Rechnung – 7.pdf", b"%PDF-1.7 small"),
    entry("documents/empty.pdf", b""),
    entry("documents/large.pdf", bytes(range(256)) * 20_000),
    entry("manifest.csv", b"id\r\n", at=datetime(1970, 1, 1, tzinfo=UTC)),
]


def test_its_length_is_known_before_and_its_names_and_times_are_what_was_given() -> None:
    made = b"".join(zipwriter.stream(ENTRIES))
    assert len(made) == zipwriter.length(ENTRIES)
    with zipfile.ZipFile(io.BytesIO(made)) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == [each.path for each in ENTRIES]
        assert [info.date_time for info in opened.infolist()][2:] == [(2026, 3, 2, 9, 30, 40), (1980, 1, 1, 0, 0, 0)]


@pytest.mark.parametrize("programs", [["unzip", "-tq"], ["7zz|7z|7za", "t", "-bd"]])
def test_it_opens_with_what_people_use(programs: list[str], tmp_path: Path) -> None:
    names, *options = programs
    found = next(filter(None, map(shutil.which, names.split("|"))), None)
    if found is None:
        pytest.skip(f"{names} is not installed")
    path = tmp_path / "made.zip"
    path.write_bytes(b"".join(zipwriter.stream(ENTRIES)))
    done = subprocess.run([found, *options, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_of_more_than_4_gb_stands_in_wide_fields() -> None:
    """Its head, its descriptor and its line of the directory; the zeros between them are not read."""
    count = (1 << 32) + 5
    huge, small = Entry("huge.pdf", count, AT, lambda: iter(())), entry("behind.pdf", b"x")
    head = zipwriter._Sent(huge)._header(8, 0, 0)
    assert zipwriter.length([huge, small]) > count + len(head)
    assert head[4:6] == b"\x2d\x00", "4.5 is needed to open it"
    assert len(zipwriter._extra(small, huge.length)) == 12
    assert len(zipwriter._extra(huge, 0)) == 20
    assert zipwriter._end(2, 100, huge.length)[:4] == b"PK\x06\x06"


@pytest.mark.parametrize("told", [3, 5, 5_000_000])
def test_a_file_of_another_size_than_was_said_breaks_it_off(told: int) -> None:
    wrong = Entry("wrong.pdf", told, AT, lambda: iter([b"four"]))
    with pytest.raises(zipwriter.WrongSize, match=r"wrong\.pdf"):
        b"".join(zipwriter.stream([wrong]))


def test_nothing_of_a_small_file_leaves_that_is_found_wrong_at_its_end() -> None:
    def broken() -> Iterator[bytes]:
        yield b"secret of somebody else"
        raise ValueError("not what was verified")

    stream = zipwriter.stream([Entry("a.pdf", 23, AT, broken)])
    with pytest.raises(ValueError, match="not what was verified"):
        assert b"secret" not in b"".join(stream)
