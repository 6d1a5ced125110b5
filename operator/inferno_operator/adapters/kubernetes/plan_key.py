"""The key with which the operator signs its Plans: from a file, a Secret, or made up."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Protocol

from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError, RejectedError, StaleError
from inferno_optimizer.errors import InputError

SECRET = "inferno-operator-plan-key"  # noqa: S105 - the name of an object
"""The Secret with the key, in the namespace of the operator."""

FIELD = "key"
KEY_BYTES = 32
FEWEST_BYTES = 16

ONLY_HERE = (
    "Plans are signed with a key that ends with this process: the next one supersedes those that"
    " wait, and proposes them again"
)
"""What follows from a key that is kept nowhere."""

logger = logging.getLogger(__name__)


class Secrets(Protocol):
    """Reads and creates Secrets."""

    async def secret(self, key: Key) -> Mapping[str, bytes]:
        """Return the data of a Secret."""

    async def create_secret(self, key: Key, data: Mapping[str, bytes], manager: str) -> None:
        """Create a Secret; `StaleError` if it exists with other data."""


class FixedKey:
    """A key that is known from the start."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    async def __call__(self) -> bytes:
        """Return the key."""
        return self._key


def key_of_file(path: Path) -> FixedKey:
    """Return the key in a file, without spaces at its ends.

    Raises
    ------
    InputError
        The file cannot be read, or is too short.
    """
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise InputError(f"INFERNO_PLAN_KEY_FILE: {error}") from error
    if len(key) < FEWEST_BYTES:
        raise InputError(
            f"INFERNO_PLAN_KEY_FILE: {path} has {len(key)} bytes, {FEWEST_BYTES} are needed"
        )
    return FixedKey(key)


class KeyOfProcess:
    """A key that nobody else ever knows; it is made up, and told of, when it is first needed."""

    def __init__(self) -> None:
        self._key = b""

    async def __call__(self) -> bytes:
        """Return the key."""
        if not self._key:
            logger.info("INFERNO_PLAN_KEY_FILE is not set: %s", ONLY_HERE)
            self._key = token_bytes(KEY_BYTES)
        return self._key


class KeyOfSecret:
    """The key in a Secret, which is created if it is not there; it is read once.

    Parameters
    ----------
    secrets
        The API server.
    place
        Namespace and name of the Secret.
    manager
        A name that no other operator has: of two that create the Secret at once, one finds that
        of the other.
    """

    def __init__(self, secrets: Secrets, place: Key, manager: str) -> None:
        self._secrets = secrets
        self._place = place
        self._manager = manager
        self._key = b""
        self._lock = asyncio.Lock()

    async def __call__(self) -> bytes:
        """Return the key.

        Raises
        ------
        UnavailableError
            The API server does not answer.
        InputError
            The Secret has a key that is too short.
        """
        async with self._lock:
            self._key = self._key or await self._read_or_create()
        return self._key

    async def _read_or_create(self) -> bytes:
        """Return the key that all operators share; one of this process if that is not allowed."""
        try:
            return await self._read() or await self._create()
        except RejectedError as error:
            logger.warning("%s; %s", error, ONLY_HERE)
            return token_bytes(KEY_BYTES)

    async def _read(self) -> bytes:
        """Return the key in the Secret, b"" if there is none."""
        try:
            data = await self._secrets.secret(self._place)
        except GoneError:
            return b""
        key = data.get(FIELD, b"")
        if key and len(key) < FEWEST_BYTES:
            raise InputError(
                f"Secret {self._place}: {FIELD} has {len(key)} bytes, at least {FEWEST_BYTES} are"
                " needed; delete the Secret to have another made"
            )
        return key

    async def _create(self) -> bytes:
        """Create the Secret, and return the key that is in it then."""
        key = token_bytes(KEY_BYTES)
        try:
            await self._secrets.create_secret(self._place, {FIELD: key}, self._manager)
        except StaleError:
            logger.info("Secret %s: another operator has created it", self._place)
        return await self._read()
