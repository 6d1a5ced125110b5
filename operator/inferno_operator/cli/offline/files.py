"""What is in the files that a person names; what is wrong with one is told in a line."""

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
        raise InputError(f"{origin}: not UTF-8 text (byte {error.start + 1})") from error
