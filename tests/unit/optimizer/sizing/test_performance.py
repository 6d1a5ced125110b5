"""Later generations of performance data, against plain arithmetic, and where that breaks down."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.sizing.performance import Requests, TokenBudgetModel
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import (
    Allocation,
    Generation,
    Load,
    PerformanceProfile,
    PrefillDecodeParameters,
    Server,
    System,
    Tail,
    Target,
    TokenBudgetParameters,
)
from tests.examples import several
from tests.unit.optimizer.oracles import (
    BudgetReplica,
    PrefillReplica,
    Queue,
    highest_rate,
    queue_of,
    share_waiting_longer,
)
from tests.unit.optimizer.systems import one_server

MINUTE = 60_000
NO_TARGET = Target()

Later = PrefillReplica | BudgetReplica


def system(replica: Later, rate: float, target: Target = NO_TARGET, fewest: int = 0) -> System:
    """A server that runs on such replicas alone."""
    match replica:
        case PrefillReplica(alpha, beta, gamma, delta):
            parameters = PrefillDecodeParameters(alpha, beta, gamma, delta)
            profile = PerformanceProfile("llm", "G2", parameters, 8, 512)
        case BudgetReplica(alpha, beta, gamma):
            budget = TokenBudgetParameters(alpha, beta, gamma)
            profile = PerformanceProfile("llm", "G2", budget, 8, 512)
    load = Load(rate, input_tokens=replica.inputs, output_tokens=replica.outputs)
    server = Server(
        "chat", "Gold", "llm", Allocation(load=load), min_replicas=fewest,
        max_batch_size=replica.batch, max_queue_size=getattr(replica, "queue_size", 0),
    )  # fmt: skip
    return one_server(server, profile, target=target)


def option(replica: Later, rate: float, target: Target = NO_TARGET, fewest: int = 0) -> Option:
    (found,) = explain(system(replica, rate, target, fewest), "chat")
    return found


PREFILL = PrefillReplica(9.2, 0.957, 46.0, 0.0116, batch=24, inputs=512, outputs=128)
BUDGET = BudgetReplica(6.69, 0.0606, 0.000552, batch=24, inputs=512, outputs=128, queue_size=30)

prefill_replicas = st.builds(
    PrefillReplica,
    alpha=st.floats(2, 40),
    beta=st.floats(0.05, 2),
    gamma=st.floats(0, 200),
    delta=st.floats(0, 0.1),
    batch=st.integers(2, 30),
    inputs=st.integers(0, 4000),
    outputs=st.integers(2, 1000),
)
budget_replicas = st.builds(
    BudgetReplica,
    alpha=st.floats(2, 10),
    beta=st.floats(0.01, 0.1),
    gamma=st.floats(0, 1e-3),
    batch=st.integers(2, 30),
    inputs=st.integers(0, 4000),
    outputs=st.integers(1, 1000),
    queue_size=st.integers(0, 200),
)


def delays(replica: Later, share: float, target: Target) -> Callable[[Queue], bool]:
    """Whether a queue keeps the targets of means; `share` loosens them."""

    def holds(queue: Queue) -> bool:
        ttft = queue.wait_ms + replica.first_token_of(queue)
        itl_kept = target.itl_ms == 0 or replica.itl_of(queue) <= target.itl_ms * share
        return itl_kept and (target.ttft_ms == 0 or ttft <= target.ttft_ms * share)

    return holds


def bisected(replica: Later, target: Target, share: float = 1.0) -> float:
    """Requests/min that a replica lets in at the highest rate that keeps the targets."""
    rate = highest_rate(replica, delays(replica, share, target), target.tokens_per_second > 0)
    return MINUTE * queue_of(replica, rate).throughput if rate else 0.0


@several(60)
@given(
    replica=prefill_replicas,
    itl=st.floats(1.02, 3),
    ttft=st.floats(1.02, 20),
    tps=st.sampled_from([0.0, 0.001]),
)
def test_the_rate_of_a_prefill_and_decode_replica_is_that_of_bisection(
    replica: PrefillReplica, itl: float, ttft: float, tps: float
) -> None:
    target = Target(
        itl * replica.decode(1),
        tokens_per_second=tps,
        ttft_ms=ttft * (replica.prefill(1) + replica.decode(1)) if replica.inputs else 0,
    )

    found = option(replica, 60, target)

    assert found.max_rate == pytest.approx(bisected(replica, target), rel=1e-6)


@several(60)
@given(replica=budget_replicas, itl=st.floats(1.1, 3), ttft=st.floats(1.1, 20))
def test_the_rate_of_a_token_budget_replica_is_that_of_bisection(
    replica: BudgetReplica, itl: float, ttft: float
) -> None:
    slowest = queue_of(replica, 0.001 * replica.rate(1))
    target = Target(itl * replica.itl_of(slowest), ttft_ms=ttft * replica.first_token_of(slowest))

    found = option(replica, 60, target)

    # Latencies step down where the chunks step up, so that they may cross a target twice.
    least, most = (bisected(replica, target, share) for share in (0.98, 1.02))
    assert least * (1 - 1e-6) <= found.max_rate <= most * (1 + 1e-6)


@several(60)
@given(replica=prefill_replicas | budget_replicas, load=st.floats(0.05, 0.99))
def test_latencies_are_those_of_the_queue_at_the_load(replica: Later, load: float) -> None:
    rate = load * 0.999 * replica.rate(replica.batch)
    queue = queue_of(replica, rate)

    found = option(replica, rate * MINUTE, fewest=1)

    if found.replicas == 1:
        assert found.itl_ms == pytest.approx(replica.itl_of(queue), rel=1e-6)
        assert found.wait_ms == pytest.approx(queue.wait_ms, rel=1e-9, abs=1e-12)
        ttft = queue.wait_ms + replica.first_token_of(queue)
        assert found.ttft_ms == pytest.approx(ttft, rel=1e-6, abs=1e-6)


@given(inputs=st.integers(0, 20_000), outputs=st.integers(1, 2000), batch=st.integers(1, 600))
def test_the_chunks_are_the_fewest_that_fit_into_the_budget(
    inputs: int, outputs: int, batch: int
) -> None:
    replica = BudgetReplica(1, 1, 1, batch, inputs, outputs, 0)
    one = np.array([0])
    covs = np.ones(1)
    prompts = np.array([inputs])
    size, outs = np.array([batch]), np.array([outputs])
    requests = Requests(size, outs, prompts, one, covs, covs, prompts, covs)
    model = TokenBudgetModel.of([TokenBudgetParameters(1, 1, 1)], one, requests)

    assert model.chunks(np.array([float(batch)])).tolist() == [replica.chunks(batch)]


def test_the_rate_of_a_token_budget_replica_falls_with_large_batches() -> None:
    replica = BudgetReplica(6, 0.06, 0.0005, batch=2048, inputs=512, outputs=32, queue_size=10)

    assert replica.rate(2048) < 0.9 * max(replica.rate(n) for n in range(1, 2048))
    assert option(replica, 60).max_rate == pytest.approx(bisected(replica, NO_TARGET), rel=1e-6)


@pytest.mark.parametrize("replica", [PREFILL, BUDGET])
@pytest.mark.parametrize("field", ["wait", "ttft"])
@pytest.mark.parametrize("percent", [50, 90, 99.9])
def test_a_percentile_as_a_target_is_kept_exactly(
    replica: Later, field: str, percent: float
) -> None:
    busy = queue_of(replica, 0.98 * replica.rate(replica.batch))
    limit = busy.wait_ms + (replica.first_token_of(busy) if field == "ttft" else 0)
    target = replace(NO_TARGET, **{f"{field}_ms": limit, f"{field}_percentile": percent})

    admitted = option(replica, 1e-3, target).max_rate / MINUTE

    offered = _offered(replica, admitted)
    after = replica.first_token_of(queue_of(replica, offered)) if field == "ttft" else 0
    times = [1 / replica.rate(n) for n in range(1, replica.batch + 1)]
    beyond = share_waiting_longer(offered, times, replica.limit, limit - after)
    at_the_end = offered > 0.9989 * replica.rate(replica.batch)
    assert beyond == pytest.approx(1 - percent / 100, rel=1e-5) or at_the_end


def _offered(replica: Later, admitted: float) -> float:
    """Rate of arrivals at which so many requests are let in."""
    low, high = 0.0, 2 * replica.rate(replica.batch)
    for _ in range(100):
        middle = (low + high) / 2
        more = queue_of(replica, middle).throughput > admitted
        low, high = (low, middle) if more else (middle, high)
    return low


def test_the_tail_belongs_to_the_load_and_grows_with_the_percentile() -> None:
    found = option(PREFILL, 0.97 * MINUTE * PREFILL.rate(PREFILL.batch), fewest=1)

    assert found.tail is not None
    assert 0 < found.tail.wait_p90 < found.tail.wait_p95 < found.tail.wait_p99
    first = found.ttft_ms - found.wait_ms
    assert found.tail.ttft_p95 == pytest.approx(found.tail.wait_p95 + first)


@pytest.mark.parametrize(
    ("replica", "idle"),
    [(PREFILL, (9.2 + 0.957, 46.0116)), (BUDGET, (6.69 + 0.0606, 6.69 + 0.0606 + 0.000552 * 24))],
)
def test_an_idle_server_with_a_floor_has_the_latencies_of_one_request(
    replica: Later, idle: tuple[float, float]
) -> None:
    found = option(replica, 0, Target(itl_ms=1e-3), fewest=2)

    assert (found.replicas, found.max_batch_size) == (2, 24)
    assert (found.itl_ms, found.ttft_ms) == pytest.approx(idle)
    assert (found.wait_ms, found.tail) == (0, Tail())


@pytest.mark.parametrize("replica", [PREFILL, BUDGET])
@pytest.mark.parametrize(
    ("current", "value"),
    [
        (Allocation(), 0.0),
        (Allocation("G2", 2, cost=50), -45.0),
        (Allocation("", 0, cost=50), 0.0),
    ],
)
def test_an_idle_server_without_a_floor_is_released(
    replica: Later, current: Allocation, value: float
) -> None:
    made = system(replica, 0)
    load = made.servers[0].load
    server = replace(made.servers[0], current=replace(current, load=load))

    solution = optimize(replace(made, servers=(server,)))

    (decided,) = solution.decisions
    generation = made.profiles[0].parameters.generation
    expected = Allocation(load=load, tail=Tail(), generation=generation)
    assert (decided.reason, decided.allocation) == (Reason.ALLOCATED, expected)
    assert solution.certificate.objective == pytest.approx(value)


FLAT = replace(PREFILL, beta=0.0, delta=0.0)


@pytest.mark.parametrize(
    ("replica", "latency"),
    [
        pytest.param(FLAT, 9.2, id="flat"),
        pytest.param(replace(PREFILL, batch=1), 9.2 + 0.957, id="batch of one"),
        pytest.param(replace(PREFILL, batch=1, outputs=2, gamma=1e6), 10.157, id="long prefill"),
        pytest.param(replace(PREFILL, inputs=0, beta=0.0), 9.2, id="flat without input"),
    ],
)
def test_a_flat_latency_that_equals_its_target_costs_nothing(
    replica: PrefillReplica, latency: float
) -> None:
    free = option(replica, 60)

    assert option(replica, 60, Target(itl_ms=latency)).max_rate == pytest.approx(free.max_rate)
    assert option(replica, 60, Target(itl_ms=latency * (1 - 1e-6))).reason


def test_without_input_nothing_is_taken_off_for_a_prefill() -> None:
    replica = replace(PREFILL, inputs=0)
    rate = 0.9 * replica.rate(replica.batch)

    found = option(replica, rate * MINUTE, fewest=1)

    assert found.itl_ms == pytest.approx(queue_of(replica, rate).service_ms / 127)


def test_a_replica_with_room_for_one_and_no_queue_is_a_loss_system() -> None:
    replica = replace(BUDGET, batch=1, queue_size=0)
    highest, mu = 0.999 * replica.rate(1), replica.rate(1)

    found = option(replica, 1e-3)

    assert found.max_rate == pytest.approx(MINUTE * highest * mu / (highest + mu))
    assert (found.wait_ms, found.tail and found.tail.wait_p99) == (0, 0)


ABSURD = [0.0, 1e-90, 1e-12, 1.0, 1e9, 1e15]


@several(300)
@given(
    parameters=st.lists(st.sampled_from(ABSURD), min_size=4, max_size=4),
    lengths=st.tuples(*[st.sampled_from([0, 1, 2, 8191, 8192, 10**6, 2**31 - 1])] * 2),
    batch=st.sampled_from([0, 1, 2, 40, 300]),
    queue_size=st.sampled_from([0, 1, 2**31 - 1]),
    rate=st.sampled_from([0.0, 1e-9, 60.0, 1e9, 1e15]),
    target=st.builds(
        Target,
        *[st.sampled_from([0.0, 1e-9, 20.0, 1e9])] * 4,
        *[st.sampled_from([0.0, 1e-6, 50.0, 99.9999])] * 2,
    ),
    later=st.booleans(),
)
def test_absurd_numbers_have_finite_answers_or_a_reason(
    parameters: list[float],
    lengths: tuple[int, int],
    batch: int,
    queue_size: int,
    rate: float,
    target: Target,
    *,
    later: bool,
) -> None:
    measured = (
        TokenBudgetParameters(*parameters[:3]) if later else PrefillDecodeParameters(*parameters)
    )
    load = Load(rate, input_tokens=lengths[0], output_tokens=lengths[1])
    server = Server(
        "chat",
        "Gold",
        "llm",
        Allocation(load=load),
        max_batch_size=batch,
        max_queue_size=queue_size,
    )
    profile = PerformanceProfile("llm", "G2", measured, 64, 512)
    made = one_server(server, profile, target=target)

    (decided,) = optimize(made).decisions

    if decided.allocation is None:
        assert decided.message
    else:
        predicted = decided.allocation
        tail = predicted.tail or Tail()
        numbers = (
            predicted.itl_ms,
            predicted.wait_ms,
            predicted.ttft_ms,
            tail.wait_p99,
            tail.ttft_p90,
        )
        assert all(math.isfinite(number) for number in numbers)


@pytest.mark.parametrize(
    ("load", "same"),
    [
        (Load(600, tokens_per_request=128), Load(600, output_tokens=128)),
        (Load(600, 64, input_tokens=9, output_tokens=128), Load(600, 64, 0, 0, 9, 128)),
    ],
)
def test_a_load_is_read_in_the_words_of_each_generation(load: Load, same: Load) -> None:
    made = system(PREFILL, 60)
    servers = [replace(made.servers[0], current=Allocation(load=words)) for words in (load, same)]

    found = [explain(replace(made, servers=(server,)), "chat") for server in servers]

    assert found[0] == found[1]


def test_generations_mix_in_one_system() -> None:
    first, second = system(PREFILL, 900), system(BUDGET, 900)
    later = replace(second.profiles[0], accelerator="A100")
    both = replace(
        first,
        accelerators=(first.accelerators[0], replace(first.accelerators[0], name="A100")),
        profiles=(first.profiles[0], later),
    )
    server = replace(second.servers[0], max_queue_size=30)

    found = {
        o.generation: replace(o, warnings=())
        for o in explain(replace(both, servers=(server,)), "chat")
    }

    alone = {
        Generation.PREFILL_DECODE: replace(explain(first, "chat")[0], warnings=()),
        Generation.TOKEN_BUDGET: replace(
            explain(second, "chat")[0],
            accelerator="A100",
            place="A100",
            placement="2 x A100",
            warnings=(),
        ),
    }
    assert found == alone
