"""Files that people name: what cannot be read or written is said in one line, by their name."""

import codecs
import os
from io import FileIO
from pathlib import Path

import inferno_operator
from inferno_optimizer.errors import InputError

NO_TEXT = {
    b"PK\x03\x04": "is a workbook or another ZIP archive, not text: save the sheet as CSV",
    b"\x1f\x8b": "is compressed, not text: unpack it first",
}
"""What a file is that begins so, and what to do about it."""


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
    for beginning, what in NO_TEXT.items():
        if data.startswith(beginning):
            raise InputError(f"{origin}: {what}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and b"\0" in data:
            raise InputError(f"{origin}: is UTF-16 text: save it as UTF-8") from error
        line = data.count(b"\n", 0, error.start) + 1
        place = f"{origin}:{line}: not UTF-8 text (byte {error.start + 1})"
        raise InputError(f"{place}: save it as UTF-8") from error


def write_bytes(file: Path | str, content: bytes) -> None:
    """Write a file, or put it in the place of one, which stays as it is if that fails.

    Raises
    ------
    InputError
        It cannot be written, such as on a full disk.
    """
    given = Path(file)
    try:
        place = given.resolve()  # a link goes on to be one
        if given.exists() and not (given.is_file() and os.access(place.parent, os.W_OK)):
            given.write_bytes(content)  # a device, or a file beside which there can be no other
        else:
            _put_in_place(place, content)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error


def append_bytes(file: Path | str, content: bytes) -> None:
    """Add to a file, or make it; all is added or nothing.

    Raises
    ------
    InputError
        It cannot be written, such as on a full disk.
    """
    try:
        with Path(file).open("ab", buffering=0) as added_to:
            end = added_to.seek(0, os.SEEK_END)
            try:
                _write_all(added_to, content)
            except OSError:
                added_to.truncate(end)
                raise
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error


def _put_in_place(place: Path, content: bytes) -> None:
    """Write a file beside, and give it the name and the permissions of the one that is there."""
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with beside.open("wb", buffering=0) as file:
            _write_all(file, content)
        if place.exists():
            beside.chmod(place.stat().st_mode)
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _write_all(file: FileIO, content: bytes) -> None:
    """Write everything, of which a nearly full disk takes a part at first."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def find_sample(name: str) -> Path:
    """Return a file or folder of `samples`, which the wheel has beside the packages."""
    package = Path(inferno_operator.__file__).parent
    folders = (package / "samples", package.parents[1] / "samples")
    return next((each for each in folders if each.is_dir()), folders[0]) / name
