"""Follow a namespace: a request until it is over, its objects until somebody has seen enough."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.progress import Progress, Stage, progress
from inferno_operator.controllers.optimization.source import Mirror
from inferno_operator.resources import RESOURCES
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InfernoError, UnavailableError

RETRY_SECONDS = 1.0

Draw = Callable[[Sequence[Observation], str], None]
"""Shows objects, and what is wrong with the connection where something is."""


class UnfinishedError(InfernoError):
    """A request is not done, or not within the time that somebody wanted to wait."""

    reason = "Unfinished"


async def follow_request(
    session: Session, key: Key, requested: int, patience: float, say: Callable[[str], None]
) -> None:
    """Wait until the request of an Optimizer is done.

    Parameters
    ----------
    session
        Where it is.
    key, requested
        The Optimizer, and its generation when it was asked.
    patience
        How long to wait [s].
    say
        Is told how far it is, whenever that changes.

    Raises
    ------
    UnfinishedError
        It failed, or was not done in time; the text tells why, or how far it was.
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
    if end.stage is not Stage.DONE:
        raise UnfinishedError(f"Optimizer {key}: {end.message}")


async def _until_over(
    session: Session, name: str, requested: int, say: Callable[[str], None]
) -> Progress:
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

    They are watched, so nothing is asked of the API server for a drawing; while not all of
    them are known those that were seen last are drawn.

    Raises
    ------
    InfernoError
        They cannot be read at first.
    """
    namespace = session.namespace
    mirror = Mirror(session.reader, RESOURCES, (namespace,), patience=interval)
    seen: Sequence[Observation] = await session.objects()
    draw(seen, "")
    async with asyncio.TaskGroup() as group:
        group.create_task(mirror.run())
        while True:
            trouble = ""
            try:
                await mirror.objects(namespace)
                seen = [o for o in mirror.all(namespace) if o.deleted is None]
            except UnavailableError as error:
                trouble = f"what is shown may be old: {error}"
            draw(seen, trouble)
            await asyncio.sleep(interval)
