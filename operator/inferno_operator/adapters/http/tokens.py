"""Bearer tokens in files that may change at any time."""

import hmac
import re
from pathlib import Path

from starlette.requests import Request

from inferno_optimizer.errors import UnavailableError

SCHEME = "bearer "

CHALLENGE = {"WWW-Authenticate": "Bearer"}

NAMESPACE = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def shows_token(request: Request, file: Path) -> bool:
    """Whether a request has the token in a file; compared in constant time.

    Raises
    ------
    UnavailableError
        The file cannot be read, or is empty.
    """
    authorization = request.headers.get("Authorization", "")
    given = authorization[len(SCHEME) :] if authorization.lower().startswith(SCHEME) else ""
    return hmac.compare_digest(given.strip().encode("latin-1"), _read(file))


def file_of(namespace: str, tokens: Path) -> Path | None:
    """The file with the token of a namespace: one for all, or its own in a folder.

    None if the folder has no file for the namespace.
    """
    if not tokens.is_dir():
        return tokens
    file = tokens / namespace
    return file if NAMESPACE.fullmatch(namespace) and file.is_file() else None


def _read(file: Path) -> bytes:
    """Return the token; no message has a part of it."""
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise UnavailableError(f"{file}: {error.strerror}") from error
    if not token:
        raise UnavailableError(f"{file} is empty: write a token into it")
    return token
