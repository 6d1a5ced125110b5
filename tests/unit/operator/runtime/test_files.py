"""Files that cannot be read or written are named, and why, in one line."""

from pathlib import Path

import pytest

from inferno_operator.runtime.files import read_text, write_bytes
from inferno_optimizer.errors import InputError


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


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    write_bytes(tmp_path / "name", b"\xef\xbb\xbftext")

    assert read_text(tmp_path / "name") == "text"


def test_a_file_that_cannot_be_written_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing/name: No such file or directory"):
        write_bytes(tmp_path / "missing" / "name", b"")
