"""Follow a request until it ends, or the objects of a namespace until the caller cancels."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.resources import SYSTEM_RESOURCES, Optimizer, OptimizerStatus
from inferno_operator.resources.conditions import OPTIMIZED
from inferno_operator.resources.objects import Key, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import InfernoError, UnavailableError
from inferno_optimizer.solution import Reason

RETRY_S = 1.0

# Shows objects, and what is wrong with the connection where something is.
Draw = Callable[[Sequence[Observation], str], Awaitable[None]]


class RequestStage(Enum):
    """Stages of a request; the last three are final."""

    ASKED = auto()
    WORKING = auto()
    DONE = auto()
    FAILED = auto()
    WITHDRAWN = auto()


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """A stage and its message."""

    stage: RequestStage
    message: str

    @property
    def is_over(self) -> bool:
        """Whether the request has ended."""
        return self.stage not in (RequestStage.ASKED, RequestStage.WORKING)


class UnfinishedError(InfernoError):
    """A request failed, or did not end within the given time."""

    reason = "Unfinished"


def read_progress(observation: Observation, requested: int) -> RequestProgress:
    """Return the progress of a request, from the status of its Optimizer.

    `observation`: the Optimizer; `requested`: its generation at the time of the request. If the
    Optimizer changes during the request, the operator optimizes the newer generation too before
    it clears the request.
    """
    status, resource = observation.status, observation.resource
    last = status.last_optimization if isinstance(status, OptimizerStatus) else None
    optimized = status.condition(OPTIMIZED)
    if last is not None and last.requested_generation >= requested:
        return RequestProgress(RequestStage.DONE, optimized.message if optimized else "")
    if not isinstance(resource, Optimizer):
        return RequestProgress(RequestStage.FAILED, f"{Reason.INVALID_SPEC}: {observation.problem}")
    if not resource.spec.optimize:
        return RequestProgress(
            RequestStage.WITHDRAWN,
            "spec.optimize was set to false before the optimization was done",
        )
    if optimized is None or (optimized.observed_generation or 0) < requested:
        return RequestProgress(RequestStage.ASKED, "asked; waiting for the operator to begin")
    if optimized.status == "False":
        return RequestProgress(RequestStage.FAILED, f"{optimized.reason}: {optimized.message}")
    return RequestProgress(RequestStage.WORKING, optimized.message)


async def follow_request(
    session: Session, key: Key, requested: int, patience: float, say: Callable[[str], None]
) -> None:
    """Wait until the request of an Optimizer is done.

    `session`: connection to the namespace of the Optimizer; `key`, `requested`: the Optimizer,
    and its generation at the time of the request; `patience`: how long to wait [s]; `say`:
    receives a message whenever the progress changes. Raises UnfinishedError if the request
    failed, or did not end in time; the text has the reason, or the progress; GoneError if the
    Optimizer was deleted.
    """
    last = ""

    def say_once(message: str) -> None:
        nonlocal last
        if message != last:
            last = message
            say(message)

    async def wait_for_end() -> RequestProgress:
        while True:
            try:
                async with aclosing(session.states(key.name)) as states:
                    async for state in states:
                        progress = read_progress(state, requested)
                        if progress.is_over:
                            return progress
                        say_once(progress.message)
            except UnavailableError as error:
                say_once(str(error))
                await asyncio.sleep(RETRY_S)

    try:
        async with asyncio.timeout(patience):
            end = await wait_for_end()
    except TimeoutError as error:
        reached = f"not done in {patience:g} s: {last or 'no answer'}"
        raise UnfinishedError(f"Optimizer {key}: {reached}") from error
    if end.stage is not RequestStage.DONE:
        raise UnfinishedError(f"Optimizer {key}: {end.message}")


async def follow_objects(session: Session, interval: float, draw: Draw) -> None:
    """Draw all objects of the namespace every `interval` seconds, until cancelled.

    The objects are watched, so a drawing needs no request to the API server. While the watch
    has not received all objects, the last known ones are drawn.

    Raises InfernoError if the first read of the objects fails.
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
