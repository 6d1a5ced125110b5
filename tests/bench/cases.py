"""What is measured by itself: each case takes its arguments, and returns numbers."""

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.optimize import optimize
from inferno_optimizer.placement import Demand, Node, unplaced
from inferno_optimizer.replay.fleet import build_fleet
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.replay.trace import Trace, assign_clients
from inferno_optimizer.solution import Solution
from inferno_optimizer.system import Allocation, PrefillDecodeParameters, Server, System
from inferno_optimizer.wire.codec import decode_system, encode_solution
from tests.bench.library import SEED, SOLVERS, Numbers, median_seconds, peak_mib
from tests.cli.program import inferno
from tests.controlplane.ports import HOST, free_port
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until
from tests.generate import JsonObject, fleet

READY_S = 30.0
ANSWER_S = 60.0
OPTIMIZE = "/optimizeOne"


def one_request(
    *, servers: int, accelerators: int = 20, demand: float = 1.0, solver: str = "greedy"
) -> Numbers:
    """A whole request over the wire, from the client's document to the client's answer."""
    document = _document(servers, accelerators, SEED, demand, solver)
    with _server() as url, httpx.Client(base_url=url, timeout=ANSWER_S) as client:
        return {
            "seconds": median_seconds(
                lambda: client.post(OPTIMIZE, json=document).raise_for_status().json()
            )
        }


def concurrent_clients(*, clients: int, requests: int, servers: int) -> Numbers:
    """Requests that all differ, from several clients at once: how many answers are wrong."""
    documents = [_document(servers, 10, seed, 1.5, "greedy") for seed in range(requests)]
    right = [
        json.loads(json.dumps(encode_solution(optimize(decode_system(document)))["allocations"]))
        for document in documents
    ]
    with _server() as url, ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda document: _allocations(url, document), documents))
    wrong = sum(answer != its for answer, its in zip(answers, right, strict=True))
    return {"wrong": wrong, "requests": requests}


def _document(servers: int, accelerators: int, seed: int, demand: float, solver: str) -> JsonObject:
    document = fleet(servers, accelerators, seed, demand)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS[solver]}
    return document


def _allocations(url: str, document: JsonObject) -> object:
    """The answer's allocations; None where there was no answer."""
    try:
        answer = httpx.post(url + OPTIMIZE, json=document, timeout=ANSWER_S)
        return answer.raise_for_status().json()["allocations"]
    except httpx.HTTPError:
        return None


@contextmanager
def _server() -> Iterator[str]:
    """The URL of a running server."""
    with Processes() as processes:
        port = free_port()
        program = Path(sys.executable).with_name("inferno")
        processes.start("serve", [program, "serve", "--host", HOST, "--port", str(port)])
        url = f"http://{HOST}:{port}"
        wait_until(lambda: _ready(url), bool, "the REST server ready", READY_S)
        yield url


def _ready(url: str) -> bool:
    try:
        return httpx.get(url + "/readyz").is_success
    except httpx.TransportError:
        return False


def optimize_file(*, servers: int, accelerators: int = 20, output: str = "table") -> Numbers:
    """`inferno plan FILE` from start to end, its bare start-up set aside."""
    with TemporaryDirectory() as folder:
        system = Path(folder) / "system.json"
        system.write_text(json.dumps(fleet(servers, accelerators, SEED, demand=1.0)))
        start_up = median_seconds(lambda: _run("--version"))
        seconds = median_seconds(lambda: _run("plan", system, "--output", output))
    return {"seconds": seconds - start_up, "start_up_seconds": start_up}


def _run(*arguments: str | Path) -> None:
    inferno(*arguments).check_returncode()


CHANGED = 0.1
CHANGE = 0.01
"""Share of the servers whose load changes, and by how much, up or down."""

FIRST_S = 28.0
"""Time limit of the first plan [s]."""

LONGER = 10.0
"""How many times its limit the plan has that shows how few moves there can be."""


def replan(*, servers: int, time_limit: float) -> Numbers:
    """Time and moves of a second plan, and how many times the fewest moves known these are."""
    document = fleet(servers, 20, SEED, 2.0)
    document["system"]["optimizerData"] = {"optimizer": SOLVERS["milp"]}
    system = decode_system(document)
    first = optimize(_within(system, FIRST_S))
    changed = replace(system, servers=_changed(system.servers, first))
    start = time.perf_counter()
    second = optimize(_within(changed, time_limit))
    seconds = time.perf_counter() - start
    moves = _moves(changed, second)
    fewest = min(moves, _moves(changed, optimize(_within(changed, LONGER * time_limit))))
    return {"seconds": seconds, "moves": moves, "of_fewest": moves / fewest}


def _within(system: System, time_limit: float) -> System:
    return replace(system, options=replace(system.options, time_limit=time_limit))


def _changed(servers: Sequence[Server], plan: Solution) -> tuple[Server, ...]:
    """The servers as the plan has them, some with another load."""
    random = np.random.default_rng(SEED)
    decided = {decision.server: decision.allocation for decision in plan.decisions}
    changed = []
    for server in servers:
        factor = 1.0 + random.choice((-CHANGE, CHANGE)) * (random.random() < CHANGED)
        load = replace(server.load, arrival_rate=server.load.arrival_rate * factor)
        now = decided[server.name] or Allocation()
        changed.append(replace(server, current=replace(now, load=load)))
    return tuple(changed)


def _moves(system: System, plan: Solution) -> int:
    """How many servers get another accelerator or number of replicas."""
    now = {server.name: server.current for server in system.servers}
    pairs = [(d.allocation or Allocation(), now[d.server]) for d in plan.decisions]
    return sum((a.accelerator, a.replicas) != (b.accelerator, b.replicas) for a, b in pairs)


ROOT = Path(__file__).parents[2]
STEP_S = 60.0
DAY_S = 86400.0


def replayed(*, policy: str, servers: int, accelerators: int, days: float) -> Numbers:
    """Replay a load that changes every ten minutes, with decisions each minute."""
    system = decode_system(fleet(servers, accelerators, SEED, demand=0.7))
    whole, _ = build_fleet(system)
    load = assign_clients(_load(days), whole.servers).every(STEP_S)
    before = _processor_seconds()
    replay(Scenario(whole, whole, load, LeadTime()), POLICIES[policy], whole.home)
    return {"seconds": _processor_seconds() - before, "mib": peak_mib()}


def _load(days: float) -> Trace:
    """The clients of a shipped trace, which begins again after its end."""
    trace = read_trace(str(ROOT / "samples/traces/servegen-m-large.csv"))
    rows = np.arange(round(days * DAY_S / trace.step_s)) % trace.steps
    columns = (trace.rate[rows], trace.input_tokens[rows], trace.output_tokens[rows])
    return Trace(trace.clients, trace.step_s, *columns)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


SIZES = (1, 2, 4, 8)
TYPES = 8


def placement(*, servers: int, nodes: int) -> Numbers:
    """Servers with a replica each on nodes of eight cards, half of which run already."""
    keys = [(f"server-{number}", "A") for number in range(servers)]
    demands = [
        Demand(key, f"T{place % TYPES}", SIZES[place // TYPES % len(SIZES)], 1)
        for place, key in enumerate(keys)
    ]
    running: list[dict[tuple[str, str], int]] = [{} for _ in range(nodes)]
    for place, demand in enumerate(demands[::2]):
        running[2 * place % nodes][demand.key] = demand.cards
    machines = [Node(f"T{place % TYPES}", 8, held) for place, held in enumerate(running)]

    def whole() -> None:
        unplaced(machines, demands)

    return {"seconds": median_seconds(whole)}


TRUTH = PrefillDecodeParameters(8.0, 0.1, 20.0, 0.0008)
MINUTE_S = 60.0
OUTPUT_TOKENS = 200.0


def calibration(*, pairs: int, windows: int) -> Numbers:
    """Windows of models on accelerators, with 5 % noise and 5 % outliers, to their parameters."""
    generator = np.random.default_rng(SEED)
    evidence = [Evidence(_windows(generator, windows), TRUTH, 64.0) for _ in range(pairs)]

    def whole() -> None:
        calibrate(evidence, windows * MINUTE_S)

    seconds = median_seconds(whole)
    return {"seconds": seconds, "mib": peak_mib()}


def _windows(generator: np.random.Generator, count: int) -> list[Window]:
    batch = generator.uniform(2.0, 40.0, count)
    inputs = generator.uniform(300.0, 700.0, count)
    prefill = TRUTH.gamma + TRUTH.delta * inputs * batch
    others = TRUTH.gamma + TRUTH.delta * inputs * (batch + 1.0)
    itl = TRUTH.alpha + TRUTH.beta * batch + (batch - 1.0) * others / (OUTPUT_TOKENS - 1.0)
    noise = generator.normal(1.0, 0.05, (2, count))
    noise *= np.where(generator.random((2, count)) < 0.05, 3.0, 1.0)
    columns = zip(
        *np.stack([itl * noise[0], batch, prefill * noise[1], inputs]).tolist(), strict=True
    )
    return [
        Window(
            end=MINUTE_S * number,
            itl_ms=measured_itl,
            intervals=5000.0,
            batch=size,
            prefill_ms=measured_prefill,
            prefills=100.0,
            input_tokens=tokens,
            output_tokens=OUTPUT_TOKENS,
        )
        for number, (measured_itl, size, measured_prefill, tokens) in enumerate(columns)
    ]
