"""What is in the files that a person names; what is wrong with one is told in a line."""

import codecs
from collections.abc import Sequence
from pathlib import Path

from inferno_optimizer.errors import InputError


def read_bytes(path: str) -> bytes:
    """Read a file.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def decoded(data: bytes, origin: str) -> str:
    """The text of a file.

    Raises
    ------
    InputError
        It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in data:
            raise InputError(f"{origin}: is UTF-16 text: save it as UTF-8") from error
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{origin}:{line}: not UTF-8 text (byte {error.start + 1})") from error


def refuse_semicolons(header: Sequence[str], origin: str) -> None:
    """Refuse the table of a spreadsheet that separates columns by semicolons.

    Raises
    ------
    InputError
        The header is one cell that has semicolons.
    """
    if len(header) == 1 and ";" in header[0]:
        raise InputError(f"{origin}:1: the columns are separated by ';': save them with ','")
