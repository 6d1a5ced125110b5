"""Optimizes at a REST optimizer: that of Inferno, or the original."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from inferno_operator.adapters.optimizers.concurrency import Places
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
from inferno_operator.adapters.optimizers.rest_client import NotFoundError, RestClient, connect
from inferno_optimizer.errors import InputError, SolverError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import (
    check_answer,
    decode_solution,
    encode_system,
    has_certificate,
)
from inferno_optimizer.wire.plausibility import Sizes, find_doubts, mark_best_effort
from inferno_optimizer.wire.questions import convert_least_rates, reword, screen
from inferno_optimizer.wire.retention import keep_running

MARGIN = 30.0
"""Time that a request may take in addition to the time limit of the solver [s]."""

TRIES = 2
"""Number of requests to an optimizer that gives servers too little without an apparent reason."""

CHANGES_OF_WORDS = 2
"""How often a question is put in other words: once for the original, once if it was replaced."""

AT_ONCE = 4
"""Largest number of concurrent requests to an optimizer that does not mix them up."""

logger = logging.getLogger(__name__)


class RemoteOptimizer:
    """An optimizer that gets the whole system with each request.

    The original mixes up concurrent requests; it is recognized by answers without a certificate.
    Therefore an answer without a certificate to a concurrent request is not used, and requests
    are sent one at a time until an answer has a certificate. A request waits for its turn at most
    as long as a request may take.

    The original knows fewer rules. It is asked in its own words, and what its answer takes away
    from servers that run under the policy `Hold` is given back.

    Parameters
    ----------
    endpoint
        Address of the optimizer.
    time_limit
        Time limit of its exact solver [s].
    """

    def __init__(self, endpoint: Endpoint, time_limit: float) -> None:
        self._endpoint = endpoint
        self._patience = time_limit + MARGIN
        self._turn = Places(endpoint.url, 1, self._patience)
        self._places = Places(endpoint.url, AT_ONCE, self._patience)
        self._keeps_apart = False
        self._knows_our_rules = True

    async def optimize(self, system: System) -> Solution:
        """Optimize remotely; servers that no plan can serve are decided locally."""
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
                        return await self._checked(client, document, system)
            async with self._client(self._turn, system) as client:
                if not self._keeps_apart:  # an earlier request may have set it meanwhile
                    return await self._solve_alone(client, system)

    async def _solve_alone(self, client: RestClient, system: System) -> Solution:
        """Optimize while no other request of this operator is running.

        An optimizer that gives servers too little although cards are left may have mixed up the
        request with that of another client: the request is sent once more.
        """
        for _ in range(TRIES - 1):
            document = await self._answer(client, system)
            if self._is_ours(document):
                return await self._checked(client, document, system)
            solution, doubt = await self._read(client, document, system)
            if not doubt:
                return solution
            logger.warning("%s: %s", self._endpoint.url, doubt)
        return await self._checked(client, await self._answer(client, system), system)

    async def _answer(self, client: RestClient, system: System) -> object:
        """Ask in words that the optimizer knows; each answer tells whether it knows ours.

        What is no answer at all tells nothing, and is an error.
        """
        for _ in range(CHANGES_OF_WORDS + 1):
            asked = self._in_its_words(system)
            document = await self._ask(client, asked)
            self._is_ours(document)
            if asked == self._in_its_words(system):
                return document
            await self._check(client, document)
        raise client.unusable("some of its answers have a certificate, and others have none")

    def _in_its_words(self, system: System) -> System:
        return system if self._knows_our_rules else reword(system)

    async def _check(self, client: RestClient, document: object) -> None:
        try:
            await asyncio.to_thread(check_answer, document)
        except InputError as error:
            raise client.unusable(error) from error

    async def _checked(self, client: RestClient, document: object, system: System) -> Solution:
        """The solution of an answer; a doubt about it is an error."""
        solution, doubt = await self._read(client, document, system)
        if doubt:
            raise client.unusable(doubt)
        return solution

    async def _read(
        self, client: RestClient, document: object, system: System
    ) -> tuple[Solution, str]:
        """The solution of an answer, and a doubt about it; "" if there is none."""
        try:
            return await asyncio.to_thread(_plausible, document, system)
        except InputError as error:
            raise client.unusable(error) from error

    @asynccontextmanager
    async def _client(self, places: Places, system: System) -> AsyncIterator[RestClient]:
        """A connection for the request about a system, opened when a place is free."""
        connection = connect(self._endpoint, self._patience, len(system.servers))
        async with places.take(_called(system)), connection as client:
            yield client

    def _is_ours(self, document: object) -> bool:
        """Whether the answer has a certificate: such an optimizer keeps requests apart."""
        self._keeps_apart = self._knows_our_rules = has_certificate(document)
        return self._keeps_apart

    async def _ask(self, client: RestClient, system: System) -> object:
        return await client.post("optimizeOne", encode_system(system))


class StatefulRemoteOptimizer(RemoteOptimizer):
    """An optimizer that stores the system; each request sends only the differences.

    The differences are found by reading all contents of the optimizer first, so that a restart
    of the optimizer or changes by other clients do no harm.

    The optimizer holds one namespace at a time: that of the last request. Several namespaces
    would have objects with equal names. With the namespace as a prefix of each name, every
    request would optimize all namespaces with the options of one, and messages would contain
    names that no user has given.
    """

    async def replace(self, system: System) -> None:
        """Replace the contents of the optimizer with this system."""
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
    """The name of a request in messages, made from the names of its servers."""
    if not system.servers:
        return "a namespace without servers"
    others = len(system.servers) - 1
    return f"server {system.servers[0].name!r}" + (f" and {others} others" if others else "")


def _plausible(document: object, system: System) -> tuple[Solution, str]:
    """The solution of an answer, and the first doubt about it."""
    is_ours = has_certificate(document)
    system = system if is_ours else convert_least_rates(system)
    solution = decode_solution(document, system)
    sizes = Sizes.of(system, is_ours=is_ours)
    explained = solution if is_ours else mark_best_effort(solution, sizes)
    doubt = next(find_doubts(explained, sizes), "")
    return (explained if is_ours or doubt else keep_running(explained, sizes)), doubt


async def _replace(client: RestClient, wanted: Contents) -> None:
    """Send the requests that change the contents of the optimizer to the wanted ones."""
    for operation in operations(await _held(client), wanted):
        path, body = escaped(list(operation.path)), escaped(operation.body)
        try:
            await (client.get(*path) if body is None else client.post(path[0], body))
        except NotFoundError as error:
            if body is not None:
                raise SolverError(f"{error}; is it stateful (inferno serve -F)?") from error


async def _held(client: RestClient) -> Contents:
    """Read the contents of the optimizer."""
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
