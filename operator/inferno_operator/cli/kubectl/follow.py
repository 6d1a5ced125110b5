"""Follow a request until it ends, or the objects of a namespace until the caller cancels."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.progress import RequestProgress, RequestStage, progress
from inferno_operator.resources import SYSTEM_RESOURCES
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import InfernoError, UnavailableError

RETRY_SECONDS = 1.0

Draw = Callable[[Sequence[Observation], str], Awaitable[None]]
"""Shows objects, and what is wrong with the connection where something is."""


class UnfinishedError(InfernoError):
    """A request failed, or did not end within the given time."""

    reason = "Unfinished"


async def follow_request(
    session: Session, key: Key, requested: int, patience: float, say: Callable[[str], None]
) -> None:
    """Wait until the request of an Optimizer is done.

    Parameters
    ----------
    session
        Connection to the namespace of the Optimizer.
    key, requested
        The Optimizer, and its generation at the time of the request.
    patience
        How long to wait [s].
    say
        Receives a message whenever the progress changes.

    Raises
    ------
    UnfinishedError
        The request failed, or did not end in time; the text has the reason, or the progress.
    GoneError
        The Optimizer was deleted.
    """
    said: list[str] = []

    def tell(message: str) -> None:
        if message not in said[-1:]:
            said.append(message)
            say(message)

    try:
        async with asyncio.timeout(patience):
            end = await _until_over(session, key.name, requested, tell)
    except TimeoutError as error:
        last = said[-1] if said else "no answer"
        raise UnfinishedError(f"Optimizer {key}: not done in {patience:g} s: {last}") from error
    if end.stage is not RequestStage.DONE:
        raise UnfinishedError(f"Optimizer {key}: {end.message}")


async def _until_over(
    session: Session, name: str, requested: int, say: Callable[[str], None]
) -> RequestProgress:
    while True:
        try:
            async with aclosing(session.states(name)) as states:
                async for state in states:
                    current = progress(state, requested)
                    if current.over:
                        return current
                    say(current.message)
        except UnavailableError as error:
            say(str(error))
            await asyncio.sleep(RETRY_SECONDS)


async def follow_objects(session: Session, interval: float, draw: Draw) -> None:
    """Draw all objects of the namespace every `interval` seconds, until cancelled.

    The objects are watched, so a drawing needs no request to the API server. While the watch has
    not received all objects, the last known ones are drawn.

    Raises
    ------
    InfernoError
        The first read of the objects fails.
    """
    namespace = session.namespace
    kinds = tuple(map(kind_of, SYSTEM_RESOURCES))
    objects = Informers(session.reader, (namespace,)).subscribe(kinds)
    seen: Sequence[Observation] = await session.objects()
    await draw(seen, "")
    async with asyncio.TaskGroup() as group:
        group.create_task(objects.run())
        while True:
            trouble = ""
            try:
                await objects.complete(interval)
                observations = (o for kind in kinds for o in objects.observations(kind, namespace))
                seen = [o for o in observations if o.deleted is None]
            except UnavailableError as error:
                trouble = f"what is shown may be old: {error}"
            await draw(seen, trouble)
            await asyncio.sleep(interval)
