"""The optimizer over HTTP: the same answers as here, and an error for all that goes wrong."""

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from inferno_operator.adapters.optimizers.endpoint import Endpoint
from inferno_operator.adapters.optimizers.remote import (
    RemoteOptimizer,
    RequestLimit,
    StatefulRemoteOptimizer,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_optimizer.errors import InfernoError, SolverError, UnavailableError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Decision, Reason, Solution
from inferno_optimizer.system import Options, SaturationPolicy, System
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.rest_optimizer import Failure, RestOptimizer
from tests.unit.operator.adapters.secrets import mount, server_tls
from tests.unit.operator.objects import (
    Manifest,
    accelerator,
    model,
    observed,
    optimizer,
    performance,
    running,
    server,
    service_class,
    system,
)

SCENE = system(4)
HURRIED = service_class("D")
NOWHERE = Path("/nowhere/secret")
REQUESTS = 20
"""So many, one after the other, while secrets are swapped."""
HURRIED["spec"]["data"] = [{"model": "M", "slo-itl": 1}]
"""A class whose target no accelerator attains."""

KINDS = [RemoteOptimizer, StatefulRemoteOptimizer]


def system_of(*manifests: Manifest) -> System:
    resources = [observed(item).resource for item in (*SCENE, *manifests, optimizer())]
    return build_system(r for r in resources if r is not None).system


TWO = system_of(server("S", wanted=2), server("T", wanted=1))
RUNS = system_of(server("S", wanted=2, spec={"currentAlloc": running(2, 2)}), server("T", wanted=1))


@pytest.fixture
def rest() -> Iterator[RestOptimizer]:
    with RestOptimizer() as running:
        yield running


@pytest.fixture(params=KINDS, ids=["stateless", "stateful"])
def remote(request: pytest.FixtureRequest, rest: RestOptimizer) -> RemoteOptimizer:
    kind: type[RemoteOptimizer] = request.param
    return kind(Endpoint("127.0.0.1", rest.port), time_limit=5.0)


def outcome(solution: Solution) -> list[tuple[str, Reason, str, str, int]]:
    def row(decision: Decision) -> tuple[str, Reason, str, str, int]:
        given = decision.allocation
        what = (given.accelerator, given.replicas) if given else ("", 0)
        return decision.server, decision.reason, decision.message, *what

    return [row(decision) for decision in solution.decisions]


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(TWO, id="enough"),
        pytest.param(system_of(server("S", wanted=3), server("T", wanted=3)), id="short"),
        pytest.param(system_of(server("S", spec={"model": "gone"}), server("T")), id="unknown"),
        pytest.param(system_of(server("a/b c%ä.."), server("."), server("..")), id="odd names"),
        pytest.param(system_of(model("N", [performance(alpha=0, beta=0)])), id="no servers"),
        pytest.param(
            system_of(
                server("S", spec={"class": "gone", "currentAlloc": running(3, 3)}),
                server("T", wanted=2),
            ),
            id="held cards",
        ),
        pytest.param(replace(RUNS, capacity={}), id="cards that nobody counts"),
        pytest.param(replace(RUNS, capacity={"t": 4}), id="cards of a mistyped type"),
        pytest.param(replace(RUNS, accelerators=()), id="no accelerator"),
        pytest.param(replace(RUNS, classes=()), id="no class"),
    ],
)
async def test_the_answer_is_the_one_of_the_embedded_optimizer(
    remote: RemoteOptimizer, system: System
) -> None:
    here = optimize(system)

    there = await remote.optimize(system)

    assert outcome(there) == outcome(here)
    assert there.capacity == here.capacity
    assert there.certificate.status == here.certificate.status


async def test_what_makes_no_sense_is_not_sent(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    idle = performance(alpha=0, beta=0)
    senseless = model("N", [idle])

    await remote.optimize(system_of(senseless, server("S", spec={"model": "N"}), server("T")))

    (sent,) = rest.solved
    assert [item["name"] for item in sent["system"]["serverData"]["servers"]] == ["T"]
    assert [item["name"] for item in sent["system"]["modelData"]["models"]] == ["M"]


async def test_an_optimizer_without_reasons_gets_ours(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    rest.original = True
    system = system_of(HURRIED, server("S", wanted=9), server("T", spec={"class": "D"}))
    options = replace(system.options, saturation_policy=SaturationPolicy.NONE)
    system = replace(system, options=options)

    solution = await remote.optimize(system)

    reasons = {decision.server: decision.reason for decision in solution.decisions}
    assert reasons == {"S": Reason.NO_CAPACITY, "T": Reason.UNATTAINABLE_SLO}
    assert all(decision.message for decision in solution.decisions)


async def test_cards_of_undecided_servers_are_held_back_from_an_optimizer_that_cannot_do_so(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    rest.original = True
    out_of_reach = server("T", spec={"class": "D", "currentAlloc": running(3, 3)})
    unknown = server("U", spec={"model": "gone", "currentAlloc": running(1, 1)})
    system = system_of(HURRIED, server("S", wanted=2), out_of_reach, unknown)

    solution = await remote.optimize(system)

    reasons = {decision.server: decision.reason for decision in solution.decisions}
    assert reasons == {
        "S": Reason.NO_CAPACITY,
        "T": Reason.UNATTAINABLE_SLO,
        "U": Reason.UNKNOWN_MODEL,
    }
    assert solution.capacity == optimize(system).capacity


@pytest.mark.parametrize("failure", [Failure.CUT, Failure.HALF, Failure.BROKEN])
async def test_a_failure_that_passes_is_not_noticed(
    remote: RemoteOptimizer, rest: RestOptimizer, failure: Failure
) -> None:
    rest.failures = [failure, failure]

    solution = await remote.optimize(TWO)

    assert outcome(solution) == outcome(optimize(TWO))


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure.CUT, UnavailableError),
        (Failure.HALF, UnavailableError),
        (Failure.BROKEN, UnavailableError),
        (Failure.NO_JSON, SolverError),
        (Failure.REFUSED, SolverError),
    ],
)
async def test_a_failure_that_stays_is_an_error_that_names_the_optimizer(
    remote: RemoteOptimizer, rest: RestOptimizer, failure: Failure, kind: type[InfernoError]
) -> None:
    rest.failures = [failure] * 10

    with pytest.raises(InfernoError) as raised:
        await remote.optimize(TWO)

    assert isinstance(raised.value, kind)
    assert rest.url in str(raised.value)
    assert "\n" not in str(raised.value)
    if kind is SolverError:
        assert len(rest.failures) == 9  # an answer is not asked for again


async def test_an_answer_that_leaves_servers_out_although_cards_are_left_is_asked_for_again(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    rest.original = True
    rest.failures = [Failure.NOBODY]

    solution = await remote.optimize(TWO)

    assert solution.allocations.keys() == {"S", "T"}


@pytest.mark.parametrize("options", [Options(), Options(unlimited=True), Options(milp=True)])
async def test_an_answer_that_goes_on_leaving_servers_out_is_refused_with_their_name(
    remote: RemoteOptimizer, rest: RestOptimizer, options: Options
) -> None:
    rest.original = True
    rest.failures = [Failure.NOBODY] * 2

    with pytest.raises(SolverError, match=r"gives nothing to server 'S'.* cards for 2 x A"):
        await remote.optimize(replace(TWO, options=options))

    assert not rest.failures


async def test_nobody_there_is_an_error_that_may_pass(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    rest.stop()

    with pytest.raises(UnavailableError, match=rest.url):
        await remote.optimize(TWO)


async def test_an_answer_that_takes_too_long_is_given_up(rest: RestOptimizer) -> None:
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port), time_limit=-28)  # 2 s of patience
    rest.gate.clear()

    with pytest.raises(UnavailableError, match="no answer within 2 s"):
        await remote.optimize(TWO)

    # What was sent in time may be read later, on a busy machine.
    asked = await asyncio.to_thread(wait_until, lambda: len(rest.requests), bool, "a request")
    assert asked == 1


async def test_a_request_can_be_cancelled(remote: RemoteOptimizer, rest: RestOptimizer) -> None:
    rest.gate.clear()
    task = asyncio.create_task(remote.optimize(TWO))
    await asyncio.to_thread(rest.arrived.wait, PATIENCE_S)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


SYSTEMS = [system_of(server(f"S{n}", wanted=1)) for n in range(5)]


async def optimized(remote: RemoteOptimizer) -> list[list[str]]:
    """Names of the servers in the answers to several requests at once."""
    solutions = await asyncio.gather(*map(remote.optimize, SYSTEMS))
    return [[d.server for d in s.decisions] for s in solutions]


async def test_requests_at_once_get_their_own_answers(remote: RemoteOptimizer) -> None:
    assert await optimized(remote) == [["S0"], ["S1"], ["S2"], ["S3"], ["S4"]]


async def test_the_original_gets_one_request_at_a_time(rest: RestOptimizer) -> None:
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    rest.original = True
    await optimized(remote)

    assert rest.most_at_once == 1


@pytest.mark.parametrize("is_known", [True, False])
async def test_one_that_keeps_requests_apart_gets_several_at_once(
    rest: RestOptimizer, *, is_known: bool
) -> None:
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    if is_known:
        await remote.optimize(TWO)
    rest.gate.clear()
    waiting = asyncio.create_task(optimized(remote))
    if not is_known:  # the answer to the first one tells
        await asyncio.to_thread(rest.arrived.wait, PATIENCE_S)
        rest.passes.release()
    await asyncio.to_thread(wait_until, lambda: rest.at_once, lambda n: n == 4, "four")
    rest.gate.set()

    assert await waiting == [["S0"], ["S1"], ["S2"], ["S3"], ["S4"]]


@pytest.mark.parametrize("kind", KINDS)
async def test_requests_do_not_wait_for_all_those_before_them_at_an_optimizer_that_hangs(
    rest: RestOptimizer, kind: type[RemoteOptimizer]
) -> None:
    remote = kind(Endpoint("127.0.0.1", rest.port), time_limit=-28)  # 2 s of patience
    rest.gate.clear()

    failures = await asyncio.gather(*map(remote.optimize, SYSTEMS), return_exceptions=True)

    assert {type(failure) for failure in failures} == {UnavailableError}
    in_the_way = [str(f) for f in failures if "no turn within 2 s" in str(f)]
    assert len(in_the_way) >= 3
    assert all(re.search(r"for \d+ s on the request for server 'S\d'$", t) for t in in_the_way)


async def test_what_the_original_may_have_mixed_up_is_asked_again(rest: RestOptimizer) -> None:
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    await remote.optimize(TWO)
    rest.original = True  # another program at the same address
    await remote.optimize(TWO)
    await remote.optimize(TWO)

    assert len(rest.solved) == 1 + 2 + 1


HELD = replace(
    system_of(
        server("S", wanted=5, spec={"currentAlloc": running(3, 5)}),
        server("T", wanted=1, spec={"class": "D"}),
        service_class("D", priority=2),
    ),
    options=Options(saturation_policy=SaturationPolicy.HOLD, hold_undecided=True),
)
"""S needs 5 of 4 cards and runs 3; T would like one of them."""


async def test_what_runs_is_kept_with_an_optimizer_that_does_not_know_hold(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    rest.original = True

    solution = await remote.optimize(HELD)

    assert solution.allocations["S"].replicas == 4
    assert solution.decisions[0].reason is Reason.BEST_EFFORT


async def test_the_policy_that_is_sent_is_one_that_the_optimizer_knows(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    await remote.optimize(HELD)
    rest.original = True
    await remote.optimize(HELD)
    await remote.optimize(HELD)
    rest.original = False
    await remote.optimize(HELD)

    sent = [body["system"]["optimizerData"]["optimizer"] for body in rest.solved]
    assert [options["saturationPolicy"] for options in sent][-4:] == [
        "PriorityExhaustive",  # the original is known by its last answer
        "PriorityExhaustive",
        "PriorityExhaustive",  # and ours by this one
        "Hold",
    ]
    assert sent[0]["saturationPolicy"] == "Hold"


WITH_B = system_of(accelerator("B", cost=1), server("S", wanted=2), server("T", wanted=1))
TWO_ACCELERATORS = replace(
    WITH_B, profiles=(*WITH_B.profiles, replace(WITH_B.profiles[0], accelerator="B"))
)
"""B is cheaper than A; both have cards of one type."""


@pytest.mark.parametrize("unlimited", [False, True])
async def test_an_optimizer_that_does_not_know_accelerators_of_servers_respects_them(
    remote: RemoteOptimizer, rest: RestOptimizer, *, unlimited: bool
) -> None:
    servers = tuple(
        replace(s, accelerators=("A",)) if s.name == "S" else s for s in TWO_ACCELERATORS.servers
    )
    options = replace(TWO_ACCELERATORS.options, unlimited=unlimited)
    system = replace(TWO_ACCELERATORS, servers=servers, options=options)
    rest.original = True

    for _ in range(2):
        solution = await remote.optimize(system)
        assert outcome(solution) == outcome(optimize(system))
        assert {d.server: d.allocation.accelerator for d in solution.decisions if d.allocation} == {
            "S": "A",
            "T": "B",
        }


async def test_an_optimizer_that_does_not_know_memory_bounds_respects_them(
    remote: RemoteOptimizer, rest: RestOptimizer
) -> None:
    small = tuple(
        replace(p, max_tokens=1) if p.accelerator == "B" else p for p in TWO_ACCELERATORS.profiles
    )
    long = tuple(
        replace(s, current=replace(s.current, load=replace(s.load, input_tokens=9)))
        for s in TWO_ACCELERATORS.servers
    )
    system = replace(TWO_ACCELERATORS, profiles=small, servers=long)
    rest.original = True

    solution = await remote.optimize(system)

    assert outcome(solution) == outcome(optimize(system))
    assert solution.allocations["S"].accelerator == "A"


async def test_answers_with_and_without_a_certificate_in_turn_are_refused(
    rest: RestOptimizer,
) -> None:
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    solve = rest.answer

    def alternate(path: list[str], body: object) -> object:
        rest.original = not rest.original
        return solve(path, body)

    rest.answer = alternate  # type: ignore[method-assign]

    with pytest.raises(SolverError, match="some of its answers have a certificate"):
        await remote.optimize(HELD)


async def test_integers_are_written_as_integers(rest: RestOptimizer) -> None:
    await RemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0).optimize(TWO)

    text = json.dumps(rest.solved[0])
    assert '"numReplicas": 0,' in text
    assert '"avgLength": 1,' in text
    assert '"count": 4}' in text


async def test_what_others_told_the_optimizer_is_taken_back_and_what_it_lost_is_sent_again(
    rest: RestOptimizer,
) -> None:
    remote = StatefulRemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    await remote.replace(TWO)
    rest.store.servers["stranger"] = {**rest.store.servers["S"], "name": "stranger"}
    rest.store.capacity["T"] = 1

    assert outcome(await remote.optimize(TWO)) == outcome(optimize(TWO))
    rest.restart_empty()
    assert outcome(await remote.optimize(TWO)) == outcome(optimize(TWO))


async def test_an_optimizer_that_keeps_nothing_is_told_apart(rest: RestOptimizer) -> None:
    remote = StatefulRemoteOptimizer(Endpoint("127.0.0.1", rest.port), 5.0)
    stateless = {"getAccelerators", "getCapacities", "getModels", "getServiceClasses", "getServers"}
    keep = rest.store.call
    rest.store.call = lambda path, body: keep(  # type: ignore[method-assign]  # another kind of server
        path if path[0] in stateless else ["no such path"], body
    )

    with pytest.raises(SolverError, match="is it stateful"):
        await remote.replace(TWO)


@pytest.mark.parametrize(
    "endpoint",
    [Endpoint(token=NOWHERE), Endpoint(authority=NOWHERE), Endpoint(certificate=NOWHERE)],
)
async def test_credentials_that_are_not_there_may_come(endpoint: Endpoint) -> None:
    remote = RemoteOptimizer(endpoint, 5.0)

    with pytest.raises(UnavailableError, match=f"credentials .*: {NOWHERE} does not exist: mount"):
        await remote.optimize(TWO)


async def test_an_optimizer_is_trusted_for_its_authority_only(
    rest: RestOptimizer, tmp_path: Path
) -> None:
    authority, other = trustme.CA(), trustme.CA()
    rest.speak_tls(server_tls(authority, "127.0.0.1", ssl.CERT_REQUIRED))
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.issue_cert("operator").private_key_and_cert_chain_pem.write_to_path(str(own))
    endpoint = Endpoint("127.0.0.1", rest.port, certificate=own, authority=ca)
    other.cert_pem.write_to_path(str(ca))
    remote = RemoteOptimizer(endpoint, 5.0)

    with pytest.raises(UnavailableError, match="certificate verify failed"):
        await remote.optimize(TWO)

    authority.cert_pem.write_to_path(str(ca))
    assert outcome(await remote.optimize(TWO)) == outcome(optimize(TWO))


async def test_secrets_that_are_swapped_while_requests_are_under_way_cost_no_answer(
    rest: RestOptimizer, tmp_path: Path
) -> None:
    """Whatever a request reads of the old ones and of the new ones."""
    authority, secret = trustme.CA(), tmp_path / "secret"
    rest.speak_tls(server_tls(authority, "127.0.0.1", ssl.CERT_REQUIRED))
    files = (secret / name for name in ("tls.crt", "tls.key", "ca.crt", "token"))
    endpoint = Endpoint("127.0.0.1", rest.port, *files)
    remote, right = RemoteOptimizer(endpoint, 5.0), outcome(optimize(TWO))
    mount(secret, "0", authority, authority)

    with swapping(rest, secret, authority):
        answers = [await remote.optimize(TWO) for _ in range(REQUESTS)]

    assert [outcome(answer) == right for answer in answers] == [True] * REQUESTS
    shown = {headers["Authorization"] for headers in rest.headers}
    assert len(shown) > REQUESTS / 2


@contextmanager
def swapping(rest: RestOptimizer, secret: Path, authority: trustme.CA) -> Iterator[None]:
    """Mount other contents while each request is answered."""
    ended = threading.Event()

    def swap() -> None:
        swaps = 0
        while not ended.wait(0.001):
            if len(rest.headers) > swaps:
                swaps += 1
                mount(secret, str(swaps), authority, authority)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


async def test_an_optimizer_that_asks_for_a_client_certificate_is_unavailable_without_one(
    rest: RestOptimizer, tmp_path: Path
) -> None:
    authority = trustme.CA()
    rest.speak_tls(server_tls(authority, "127.0.0.1", ssl.CERT_REQUIRED))
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    remote = RemoteOptimizer(Endpoint("127.0.0.1", rest.port, authority=ca), 5.0)

    for _ in range(4):  # it depends on the order of packets which error the connection gives
        with pytest.raises(UnavailableError, match=rest.url.removeprefix("http:")):
            await remote.optimize(TWO)


# RequestLimit at an optimizer: in turn, and no longer than one's patience


FOREVER = 3600.0


async def visit(places: RequestLimit, name: str, visits: list[str]) -> None:
    async with places.take(name):
        visits.append(name)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "for 0 s on the request for a"), (3, "for 0 s on the request for a and on 2 other")],
)
async def test_one_that_waits_too_long_is_told_who_is_in_its_way(count: int, words: str) -> None:
    places = RequestLimit("http://here", count, patience=0.01)
    entered = [places.take(name) for name in "abc"[:count]]
    for place in entered:
        await place.__aenter__()

    with pytest.raises(UnavailableError, match=rf"^http://here: no turn within 0.01 s: .* {words}"):
        await visit(places, "z", [])


@pytest.mark.parametrize("ends", ["with an error", "cancelled"])
async def test_a_place_is_free_again_however_a_request_ends(ends: str) -> None:
    places = RequestLimit("http://here", 1, FOREVER)
    visits: list[str] = []

    async def fail() -> None:
        async with places.take("a"):
            if ends == "cancelled":
                await asyncio.Event().wait()
            raise UnavailableError("no answer")

    failing = asyncio.create_task(fail())
    waiting = asyncio.create_task(visit(places, "b", visits))
    await asyncio.sleep(0)
    failing.cancel()
    await asyncio.wait([failing, waiting])

    assert visits == ["b"]


async def test_who_gives_up_waiting_takes_no_place() -> None:
    places = RequestLimit("http://here", 1, FOREVER)
    visits: list[str] = []
    async with places.take("a"):
        gone = asyncio.create_task(visit(places, "b", visits))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
    await visit(places, "c", visits)

    assert visits == ["c"]


async def test_a_request_that_ends_just_when_another_gives_up_waiting_is_named() -> None:
    places = RequestLimit("http://here", 1, patience=0.0)
    async with places.take("a"):
        waiting = asyncio.create_task(visit(places, "b", []))
        await asyncio.sleep(0)

    with pytest.raises(UnavailableError, match=r"on the request for a$"):
        await waiting
