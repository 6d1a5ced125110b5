"""Optimizes at a REST optimizer: that of Inferno, or the original."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.rest_client import NotFoundError, RestClient, connect
from inferno_optimizer.errors import InputError, SolverError, UnavailableError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import (
    check_answer,
    decode_solution,
    decode_system,
    encode_system,
    has_certificate,
)
from inferno_optimizer.wire.fields import LARGEST_NUMBER
from inferno_optimizer.wire.plausibility import Sizes, find_doubts, mark_best_effort
from inferno_optimizer.wire.questions import convert_least_rates, reword, screen
from inferno_optimizer.wire.retention import keep_running


class RequestLimit:
    """Limits the number of concurrent requests; waiting requests are served in order of arrival.

    A request that waits longer than `patience` fails with an error that names the oldest running
    request. Otherwise, if the optimizer hangs, it would wait for the timeouts of all requests
    before it.

    Parameters
    ----------
    url
        URL of the optimizer, for messages.
    count
        Largest number of concurrent requests.
    patience
        Longest time that a request waits for a place [s].
    """

    def __init__(self, url: str, count: int, patience: float) -> None:
        self._url = url
        self._free = asyncio.Semaphore(count)
        self._patience = patience
        self._taken: list[tuple[float, str]] = []
        """Start time [s] and name of each running request; the oldest first."""
        self._last = (0.0, "")
        """The request that ended last: it may do so just when others have waited too long."""

    @asynccontextmanager
    async def take(self, request: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it while the context is open.

        Parameters
        ----------
        request
            Name of the request in the error messages of waiting requests.

        Raises
        ------
        UnavailableError
            No place became free in time.
        """
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise UnavailableError(self._describe_occupation()) from None
        place = (asyncio.get_running_loop().time(), request)
        self._taken.append(place)
        try:
            yield
        finally:
            self._taken.remove(place)
            self._last = place
            self._free.release()

    def _describe_occupation(self) -> str:
        """The error message that names the oldest running request, or else the last one."""
        since, request = self._taken[0] if self._taken else self._last
        seconds = asyncio.get_running_loop().time() - since
        others = f" and on {len(self._taken) - 1} other requests" if self._taken[1:] else ""
        return (
            f"{self._url}: no turn within {self._patience:g} s: the optimizer has been at work for"
            f" {seconds:.0f} s on the request for {request}{others}"
        )


ItemName = tuple[str, ...]
Contents = Mapping[str, Mapping[ItemName, Any]]
"""The items of each section of a system, by their names; the model names are under `MODELS`."""

READS = ("getAccelerators", "getCapacities", "getModels", "getServiceClasses", "getServers")
"""Paths of the requests that read all contents of an optimizer; of models only the names."""


class _Section(NamedTuple):
    name: str
    items: str
    identity: ItemName
    set: str
    remove: str


SECTIONS = (
    _Section("acceleratorData", "accelerators", ("name",), "setAccelerators", "removeAccelerator"),
    _Section("capacityData", "count", ("type",), "setCapacities", "removeCapacity"),
    _Section("modelData", "models", ("name", "acc"), "setModels", "removeModelAcceleratorPerf"),
    _Section(
        "serviceClassData", "serviceClasses", ("name",), "setServiceClasses", "removeServiceClass"
    ),
    _Section("serverData", "servers", ("name",), "setServers", "removeServer"),
)

MODELS = "models"
"""Key of the model names: a model remains when its last performance data are removed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: a POST with a body, or a GET if the body is None; it may be sent twice."""

    path: tuple[str, ...]
    body: Mapping[str, Any] | None = None


def build_contents(system: System) -> Contents:
    """The contents of an optimizer that holds exactly this system."""
    in_order = [replace(c, targets=dict(sorted(c.targets.items()))) for c in system.classes]
    document = _round_numbers(encode_system(replace(system, classes=tuple(in_order)))["system"])
    sections = {
        section.name: {
            tuple(item[key] for key in section.identity): item
            for item in document[section.name][section.items]
        }
        for section in SECTIONS
    }
    return {**sections, MODELS: _build_keys(profile.model for profile in system.profiles)}


def decode_contents(answers: Mapping[str, object], profiles: Iterable[object]) -> Contents:
    """The contents of an optimizer, from its responses.

    Parameters
    ----------
    answers
        The responses to `READS`, by path.
    profiles
        The response to `getModel` for each model.

    Raises
    ------
    InputError
        A response is invalid; the message names the object and the field.
    """
    data = [data for answer in profiles for data in _list_items(answer, "models")]
    system = {
        "acceleratorData": {"accelerators": answers["getAccelerators"]},
        "capacityData": answers["getCapacities"],
        "modelData": {"models": data},
        "serviceClassData": answers["getServiceClasses"],
        "serverData": answers["getServers"],
    }
    stored = build_contents(decode_system({"system": system}))
    return {**stored, MODELS: _build_keys(map(str, _list_items(answers, "getModels")))}


def find_operations(held: Contents, wanted: Contents) -> tuple[Operation, ...]:
    """The requests, in order, that change the held contents to the wanted ones.

    Servers are added last and removed first, so that the objects they refer to always exist.
    """
    removals = [(section.name, section.remove) for section in reversed(SECTIONS)]
    removals.append((MODELS, "removeModel"))
    goes = [
        Operation((remove, *name))
        for what, remove in removals
        for name in sorted(held[what].keys() - wanted[what].keys())
    ]
    comes = [op for section in SECTIONS for op in _find_changes(section, held, wanted)]
    return (*comes, *goes)


def _find_changes(section: _Section, held: Contents, wanted: Contents) -> Iterator[Operation]:
    before = held[section.name]
    changed = [item for name, item in wanted[section.name].items() if before.get(name) != item]
    if changed:
        yield Operation((section.set,), {section.items: changed})


def escape_names(document: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with all names escaped, so that they can be used in a URL path.

    The optimizer stores the escaped names. It decodes a path before it splits it at slashes, so
    that URL encoding alone would not protect a slash in a name.
    """
    return _map_strings(document, _escape)


def restore_names(document: object) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with the original names: reverts `escape_names`."""
    return _map_strings(document, unquote)


def _escape(name: str) -> str:
    if name in (".", ".."):  # relative path segments
        return name.replace(".", "%2E")
    return name.replace("%", "%25").replace("/", "%2F")


def _map_strings(document: object, change: Callable[[str], str]) -> object:
    """The document with a function applied to each string and each key."""
    if isinstance(document, str):
        return change(document)
    if isinstance(document, Mapping):
        return {change(str(key)): _map_strings(value, change) for key, value in document.items()}
    if isinstance(document, list):
        return [_map_strings(item, change) for item in document]
    return document


def _round_numbers(document: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """The document with its floating-point numbers rounded to 32 bits."""
    if isinstance(document, float):
        within = max(min(document, LARGEST_NUMBER), -LARGEST_NUMBER)
        return struct.unpack("f", struct.pack("f", within))[0]
    if isinstance(document, Mapping):
        return {key: _round_numbers(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_round_numbers(item) for item in document]
    return document


def _build_keys(names: Iterable[str]) -> Mapping[ItemName, None]:
    return {(name,): None for name in names}


def _list_items(document: object, key: str) -> list[object]:
    part = document.get(key) if isinstance(document, Mapping) else None
    return part if isinstance(part, list) else []


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
        self._turn = RequestLimit(endpoint.url, 1, self._patience)
        self._places = RequestLimit(endpoint.url, AT_ONCE, self._patience)
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
                async with self._connect_in_turn(self._places, system) as client:
                    document = await self._ask(client, system)
                    if self._is_ours(document):
                        return await self._read_checked(client, document, system)
            async with self._connect_in_turn(self._turn, system) as client:
                if not self._keeps_apart:  # an earlier request may have set it meanwhile
                    return await self._solve_alone(client, system)

    async def _solve_alone(self, client: RestClient, system: System) -> Solution:
        """Optimize while no other request of this operator is running.

        An optimizer that gives servers too little although cards are left may have mixed up the
        request with that of another client: the request is sent once more.
        """
        for _ in range(TRIES - 1):
            document = await self._ask_in_known_words(client, system)
            if self._is_ours(document):
                return await self._read_checked(client, document, system)
            solution, doubt = await self._read(client, document, system)
            if not doubt:
                return solution
            logger.warning("%s: %s", self._endpoint.url, doubt)
        return await self._read_checked(
            client, await self._ask_in_known_words(client, system), system
        )

    async def _ask_in_known_words(self, client: RestClient, system: System) -> object:
        """Ask in words that the optimizer knows; each answer tells whether it knows ours.

        What is no answer at all tells nothing, and is an error.
        """
        for _ in range(CHANGES_OF_WORDS + 1):
            asked = self._choose_words(system)
            document = await self._ask(client, asked)
            self._is_ours(document)
            if asked == self._choose_words(system):
                return document
            await self._check(client, document)
        raise client.unusable("some of its answers have a certificate, and others have none")

    def _choose_words(self, system: System) -> System:
        return system if self._knows_our_rules else reword(system)

    async def _check(self, client: RestClient, document: object) -> None:
        try:
            await asyncio.to_thread(check_answer, document)
        except InputError as error:
            raise client.unusable(error) from error

    async def _read_checked(self, client: RestClient, document: object, system: System) -> Solution:
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
            return await asyncio.to_thread(_decode_plausible, document, system)
        except InputError as error:
            raise client.unusable(error) from error

    @asynccontextmanager
    async def _connect_in_turn(
        self, places: RequestLimit, system: System
    ) -> AsyncIterator[RestClient]:
        """A connection for the request about a system, opened when a place is free."""
        connection = connect(self._endpoint, self._patience, len(system.servers))
        async with places.take(_describe_request(system)), connection as client:
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
        async with self._connect_in_turn(self._turn, screening.system) as client:
            await _replace_contents(client, build_contents(screening.system))

    async def _solve(self, system: System) -> Solution:
        async with self._connect_in_turn(self._turn, system) as client:
            return await self._solve_alone(client, system)

    async def _ask(self, client: RestClient, system: System) -> object:
        await _replace_contents(client, build_contents(system))
        options = encode_system(system)["system"]["optimizerData"]["optimizer"]
        return restore_names(await client.post("optimize", options))


def _describe_request(system: System) -> str:
    """The name of a request in messages, made from the names of its servers."""
    if not system.servers:
        return "a namespace without servers"
    others = len(system.servers) - 1
    return f"server {system.servers[0].name!r}" + (f" and {others} others" if others else "")


def _decode_plausible(document: object, system: System) -> tuple[Solution, str]:
    """The solution of an answer, and the first doubt about it."""
    is_ours = has_certificate(document)
    system = system if is_ours else convert_least_rates(system)
    solution = decode_solution(document, system)
    sizes = Sizes.of(system, is_ours=is_ours)
    explained = solution if is_ours else mark_best_effort(solution, sizes)
    doubt = next(find_doubts(explained, sizes), "")
    return (explained if is_ours or doubt else keep_running(explained, sizes)), doubt


async def _replace_contents(client: RestClient, wanted: Contents) -> None:
    """Send the requests that change the contents of the optimizer to the wanted ones."""
    for operation in find_operations(await _read_contents(client), wanted):
        path, body = escape_names(list(operation.path)), escape_names(operation.body)
        try:
            await (client.get(*path) if body is None else client.post(path[0], body))
        except NotFoundError as error:
            if body is not None:
                raise SolverError(f"{error}; is it stateful (inferno serve -F)?") from error


async def _read_contents(client: RestClient) -> Contents:
    """Read the contents of the optimizer."""
    answers = {path: restore_names(await client.get(path)) for path in READS}
    profiles = [
        restore_names(await client.get("getModel", *escape_names([name])))
        for name in _list_models(client, answers)
    ]
    try:
        return decode_contents(answers, profiles)
    except InputError as error:
        raise client.unusable(error) from error


def _list_models(client: RestClient, answers: Mapping[str, object]) -> list[str]:
    names = answers["getModels"] or []
    if not isinstance(names, list):
        raise client.unusable("the names of the models are no list")
    return [str(name) for name in names]
