"""Files that cannot be read or written are named, and why, in one line."""

from pathlib import Path

import pytest

from inferno_operator.runtime.files import append_bytes, read_text, write_bytes
from inferno_optimizer.errors import InputError
from tests.full_disk import room_for


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory"),
        (b"first\n\xff", ":2: not UTF-8 text (byte 7)"),
        ("text".encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_refused_by_its_name(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "name"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InputError) as refused:
        read_text(file)
    with pytest.raises(InputError) as named:
        read_text(file, "--option name")

    assert str(refused.value).startswith(str(file))
    assert str(named.value).startswith("--option name")
    assert words in str(refused.value)
    assert words in str(named.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing/name", "missing/name: No such file or directory"),
        ("/dev/full", r"^/dev/full: No space left on device$"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_by_its_name(
    path: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        write_bytes(tmp_path / path, b"text")


def test_a_full_disk_leaves_the_file_that_was_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("the page of yesterday")

    with room_for(100), pytest.raises(InputError) as refused:
        write_bytes(file, b"x" * 101)

    assert str(refused.value) == f"{file}: File too large"
    assert file.read_text() == "the page of yesterday"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_stays_what_it_was_when_it_is_written_anew(tmp_path: Path) -> None:
    """Its permissions are as before, and a link to it goes on to be one."""
    file, link = tmp_path / "private", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to(file)

    write_bytes(link, b"after")

    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o640)
    assert link.is_symlink()


def test_lines_are_added_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    append_bytes(file, b"first\n")

    with room_for(10), pytest.raises(InputError) as refused:
        append_bytes(file, b"second\n")

    assert str(refused.value) == f"{file}: File too large"
    assert file.read_text() == "first\n"
    append_bytes(file, b"second\n")
    assert file.read_text() == "first\nsecond\n"


def test_a_new_file_has_the_permissions_of_others_and_a_mark_of_byte_order_is_no_text(
    tmp_path: Path,
) -> None:
    (tmp_path / "ordinary").write_text("")

    write_bytes(tmp_path / "name", b"\xef\xbb\xbftext")

    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1
    assert read_text(tmp_path / "name") == "text"
