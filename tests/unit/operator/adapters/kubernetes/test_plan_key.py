"""Where the key that signs Plans comes from: a file, a Secret, or nowhere else."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferno_operator.adapters.kubernetes.plan_key import (
    SECRET,
    KeyOfProcess,
    KeyOfSecret,
    key_of_file,
)
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError, RejectedError, StaleError
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

PLACE = Key("inferno-system", SECRET)


class Secrets:
    """Secrets in memory; the first creator of one wins."""

    def __init__(self) -> None:
        self.stored: dict[Key, Mapping[str, bytes]] = {}
        self.managers: list[str] = []
        self.failures: list[InfernoError] = []

    async def secret(self, key: Key) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if key not in self.stored:
            raise GoneError("there is no such Secret")
        return self.stored[key]

    async def create_secret(self, key: Key, data: Mapping[str, bytes], manager: str) -> None:
        await asyncio.sleep(0)
        if key in self.stored:
            raise StaleError("another manager has other data")
        self.stored[key] = data
        self.managers.append(manager)


async def test_the_first_operator_makes_the_secret_and_all_use_its_key() -> None:
    secrets = Secrets()
    operators = [KeyOfSecret(secrets, PLACE, name) for name in ("one", "other")]

    keys = await asyncio.gather(*(operator() for operator in operators))
    later = await KeyOfSecret(secrets, PLACE, "later")()

    assert len(set(keys)) == 1
    assert later == keys[0] == secrets.stored[PLACE]["key"]
    assert len(later) == 32
    assert len(secrets.managers) == 1
    secrets.stored.clear()
    assert await operators[0]() == later  # it is read once


async def test_an_api_server_that_does_not_answer_is_no_reason_for_another_key() -> None:
    secrets = Secrets()
    secrets.stored[PLACE] = {"key": b"k" * 32}
    secrets.failures.append(UnavailableError("no answer"))
    operator = KeyOfSecret(secrets, PLACE, "one")

    with pytest.raises(UnavailableError):
        await operator()

    assert await operator() == b"k" * 32


async def test_without_the_right_to_the_secret_the_key_ends_with_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets = Secrets()
    secrets.failures.append(RejectedError("forbidden"))
    operator = KeyOfSecret(secrets, PLACE, "one")

    key = await operator()

    assert await operator() == key
    assert "forbidden" in caplog.text
    assert "proposes them again" in caplog.text


async def test_a_short_key_in_the_secret_is_refused() -> None:
    secrets = Secrets()
    secrets.stored[PLACE] = {"key": b"short"}

    with pytest.raises(InputError, match="delete the Secret"):
        await KeyOfSecret(secrets, PLACE, "one")()


async def test_a_file_has_the_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a key that is long enough\n")

    assert await key_of_file(file)() == b"a key that is long enough"


@pytest.mark.parametrize("text", [None, "", "short\n"])
def test_a_file_that_is_not_there_or_has_too_little_is_refused(
    text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text)

    with pytest.raises(InputError, match="INFERNO_PLAN_KEY_FILE"):
        key_of_file(file)


async def test_two_processes_have_two_keys() -> None:
    one, other = KeyOfProcess(), KeyOfProcess()

    assert await one() == await one() != await other()
