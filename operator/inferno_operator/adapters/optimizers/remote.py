"""Solve at a REST optimizer: ours, or the original."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from inferno_operator.adapters.optimizers.contents import (
    READS,
    Contents,
    contents,
    contents_told,
    escaped,
    operations,
    unescaped,
)
from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.places import Places
from inferno_operator.adapters.optimizers.rest_client import NotFoundError, RestClient, connect
from inferno_optimizer.errors import InputError, SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import Solution, System
from inferno_optimizer.wire.codec import decode_solution, encode_system
from inferno_optimizer.wire.plausibility import find_doubts
from inferno_optimizer.wire.screening import screen

MARGIN = 30.0
"""Seconds that a request may take besides those of the solver."""

TRIES = 2
"""How often an optimizer is asked that leaves servers out for no reason."""

AT_ONCE = 4
"""Requests at a time to an optimizer that keeps them apart."""

logger = logging.getLogger(__name__)


class RemoteOptimizer:
    """An optimizer that gets the whole system with each request.

    The original mixes up requests that it gets together, and is told by its answers, which lack
    the certificate. So an answer that may be mixed up is not used, and until one has come from an
    optimizer like ours there is one request at a time. A request that waits for its turn waits as
    long as it may take itself.

    Parameters
    ----------
    endpoint
        Where it is.
    time_limit
        What its exact solver may take [s].
    """

    def __init__(self, endpoint: Endpoint, time_limit: float) -> None:
        self._endpoint = endpoint
        self._patience = time_limit + MARGIN
        self._turn = Places(endpoint.url, 1, self._patience)
        self._places = Places(endpoint.url, AT_ONCE, self._patience)
        self._keeps_apart = False

    async def optimize(self, system: System) -> Solution:
        """Solve there; what no optimizer can decide is decided here."""
        screening = await asyncio.to_thread(screen, system)  # 1 s for 10,000 servers
        if not screening.system.servers:
            return screening.complete(optimize(screening.system))
        return screening.complete(await self._solve(screening.system))

    async def _solve(self, system: System) -> Solution:
        while True:
            if self._keeps_apart:
                async with self._client(self._places, system) as client:
                    document = await self._ask(client, system)
                    if self._is_ours(document):
                        return _solution(client, document, system)
            async with self._client(self._turn, system) as client:
                if not self._keeps_apart:  # else a request before this one found it out
                    return await self._solve_alone(client, system)

    async def _solve_alone(self, client: RestClient, system: System) -> Solution:
        """Solve in one's turn.

        An optimizer that leaves out servers although cards are left may have mixed up the
        request with that of another client: it is asked once more.
        """
        doubt = ""
        for _ in range(TRIES):
            document = await self._ask(client, system)
            solution = _solution(client, document, system)
            doubt = "" if self._is_ours(document) else next(find_doubts(solution, system), "")
            if not doubt:
                return solution
            logger.warning("%s: %s", self._endpoint.url, doubt)
        raise client.unusable(doubt)

    @asynccontextmanager
    async def _client(self, places: Places, system: System) -> AsyncIterator[RestClient]:
        """A connection, as soon as there is a place for the request about a system."""
        async with places.take(_called(system)), connect(self._endpoint, self._patience) as client:
            yield client

    def _is_ours(self, document: object) -> bool:
        """Whether it is the answer of an optimizer like ours, which keeps requests apart."""
        self._keeps_apart = isinstance(document, dict) and "certificate" in document
        return self._keeps_apart

    async def _ask(self, client: RestClient, system: System) -> object:
        return await client.post("optimizeOne", encode_system(system))


class StatefulRemoteOptimizer(RemoteOptimizer):
    """An optimizer that keeps what it is told, and is told what differs.

    What differs is found out by asking it for all that it has: so it does not matter whether
    it was restarted, or whether others told it something else.

    It holds one namespace at a time, that which was told last. Side by side, objects of the
    same name would collide; with the namespace in every name they would not, but every
    request would solve all namespaces, with the options of one, and tell people names that
    nobody gave.
    """

    async def replace(self, system: System) -> None:
        """Let it have this system and nothing else."""
        screening = await asyncio.to_thread(screen, system)
        async with self._client(self._turn, screening.system) as client:
            await _replace(client, contents(screening.system))

    async def _solve(self, system: System) -> Solution:
        async with self._client(self._turn, system) as client:
            return await self._solve_alone(client, system)

    async def _ask(self, client: RestClient, system: System) -> object:
        await _replace(client, contents(system))
        options = encode_system(system)["system"]["optimizerData"]["optimizer"]
        return unescaped(await client.post("optimize", options))


def _called(system: System) -> str:
    """What people know a request by: they gave the names."""
    if not system.servers:
        return "a namespace without servers"
    others = len(system.servers) - 1
    return f"server {system.servers[0].name!r}" + (f" and {others} others" if others else "")


def _solution(client: RestClient, document: object, system: System) -> Solution:
    try:
        return decode_solution(document, system)
    except InputError as error:
        raise client.unusable(error) from error


async def _replace(client: RestClient, wanted: Contents) -> None:
    """Send what makes the optimizer's contents the wanted ones."""
    for operation in operations(await _held(client), wanted):
        path, body = escaped(list(operation.path)), escaped(operation.body)
        try:
            await (client.get(*path) if body is None else client.post(path[0], body))
        except NotFoundError as error:
            if body is not None:
                raise SolverError(f"{error}; is it stateful (inferno serve -F)?") from error


async def _held(client: RestClient) -> Contents:
    """What the optimizer has."""
    answers = {path: unescaped(await client.get(path)) for path in READS}
    profiles = [
        unescaped(await client.get("getModel", *escaped([name])))
        for name in _models(client, answers)
    ]
    try:
        return contents_told(answers, profiles)
    except InputError as error:
        raise client.unusable(error) from error


def _models(client: RestClient, answers: Mapping[str, object]) -> list[str]:
    names = answers["getModels"] or []
    if not isinstance(names, list):
        raise client.unusable("the names of the models are no list")
    return [str(name) for name in names]
