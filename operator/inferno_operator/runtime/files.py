"""Files that people name: what cannot be read or written is said in one line, by their name."""

import codecs
from pathlib import Path

from inferno_optimizer.errors import InputError


def read_bytes(file: Path | str, origin: str = "") -> bytes:
    """Read a file.

    Parameters
    ----------
    file
        Where it is.
    origin
        What a message calls it; by default its path.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{origin or file}: {error.strerror or error}") from error


def read_text(file: Path | str, origin: str = "") -> str:
    """Read a file of text, see `read_bytes`.

    Raises
    ------
    InputError
        It cannot be read, or is not UTF-8.
    """
    return decoded(read_bytes(file, origin), origin or str(file))


def decoded(data: bytes, origin: str) -> str:
    """Return the text of a file, without a byte order mark.

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


def write_bytes(file: Path | str, content: bytes) -> None:
    """Write a file, or put it in the place of one.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        Path(file).write_bytes(content)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
