"""A solution as text: servers, cards, proof, the options of one server, and comparisons.

Costs are in cents/hour where no currency is asked for, latencies in ms, rates in requests/min.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.table import (
    Columns,
    Part,
    ServerPart,
    ServerParts,
    TextTable,
    group_notes,
)
from inferno_optimizer.explain.comparison import Comparison, DecisionDifference, served
from inferno_optimizer.explain.options import Option, explain, with_choice
from inferno_optimizer.explain.remedies import Remedy, remedies
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import (
    CapacityUse,
    Decision,
    Gain,
    Level,
    Reason,
    Solution,
)
from inferno_optimizer.system import Allocation, Generation, Role, Server, System, band_of, place_of
from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

GAP_DIGITS = 9  # decimals of a gap; further ones are rounding
SCORE = "SCORE: change of cost plus the penalty of a move; lower is better"

BAND = "LATENCIES"  # heading of the column that says where predicted latencies come from


def describe_solution(system: System, solution: Solution, money: Money = CENTS) -> Iterator[Part]:
    """Yield servers with their current and planned allocations, totals, cards and the proof."""
    yield tabulate_decisions(system, solution, money)
    yield ""
    if notes := list(list_decision_notes(solution.decisions)):
        yield from notes
        yield ""
    yield (
        f"{len(solution.allocations)} of {len(system.servers)} servers have an allocation; "
        f"cost {money.amount(system.current_cost)} -> {money.amount(solution.cost)} {money.rate}"
    )
    yield from warn_of_single_replicas(list_replicas(system, solution), money)
    if solution.capacity:
        yield ""
        yield tabulate_cards(solution.capacity, money)
    yield ""
    if levels := solution.certificate.levels:
        yield tabulate_levels(levels)
        yield ""
    yield from describe_proof(solution)


def describe_proof(solution: Solution) -> Iterator[str]:
    """Yield the certificate of a solution as one line, and what it does not cover."""
    proof = solution.certificate
    gap = "not known" if proof.gap is None else f"{round(proof.gap, GAP_DIGITS):.2g}"
    yield (
        f"solver {proof.solver}: {proof.status}, "
        f"objective {proof.objective:.2f}, gap {gap}, {proof.seconds:.3f} s"
    )
    if estimated := sum(a.origin == "estimated" for a in solution.allocations.values()):
        servers = f"{estimated} server{'s' if estimated > 1 else ''}"
        yield f"gap and latencies assume exact data; the data of {servers} are estimated: calibrate"
    for text in proof.failures:
        yield f"warning: the solver failed at {text}; the plan is the best one found without it"


def tabulate_decisions(system: System, solution: Solution, money: Money) -> TextTable:
    """Return the servers, with what runs and what is decided."""
    catalogue = Catalogue(system)
    ttft = has_ttft(solution.allocations.values())
    rows = [
        (
            server.name,
            server.service_class,
            server.model,
            f"{server.load.arrival_rate:g}",
            format_replicas(server.current, server.model, catalogue),
            money.amount(server.current.cost),
            *_format_decision(server, decision, catalogue, money, ttft=ttft),
            format_origin(decision.allocation or Allocation()),
            decision.reason,
        )
        for server, decision in zip(system.servers, solution.decisions, strict=True)
    ]
    now = ("SERVER", "CLASS", "MODEL", ">LOAD", "CURRENT", ">CURRENT:COST")
    then = ("DESIRED", ">BATCH", ">DESIRED:COST", *list_latency_headings(ttft=ttft))
    latencies = ("WAIT MS", "ITL MS", "TTFT MS")
    optional = ("CLASS", "BATCH", BAND, *latencies, "MODEL", "CURRENT COST", "LOAD", "CURRENT")
    planned = zip(system.servers, list_planned(system, solution), strict=True)
    parts = _build_server_parts(planned, catalogue, money, len(system.servers))
    table = TextTable((*now, *then, BAND, "REASON"), rows, optional, parts)
    is_banded = any(allocation.origin for allocation in solution.allocations.values())
    return table if is_banded else table.without(BAND)


def _format_decision(
    server: Server, decision: Decision, catalogue: Catalogue, money: Money, *, ttft: bool
) -> tuple[str, ...]:
    """Return what is decided; where no decision is possible, what runs, which stays."""
    allocation = decision.allocation
    if is_kept(server, decision):
        current = format_replicas(server.current, server.model, catalogue)
        return (current, "", money.amount(server.current.cost), *[""] * (2 + ttft))
    if allocation is None:
        return ("-", *[""] * (4 + ttft))
    return (
        format_replicas(allocation, server.model, catalogue),
        str(allocation.max_batch_size),
        money.amount(allocation.cost),
        *format_latencies(allocation, ttft=ttft),
    )


def is_kept(server: Server, decision: Decision) -> bool:
    """Whether what runs stays because no decision is possible."""
    undecided = decision.allocation is None and not decision.reason.decided
    return undecided and server.current.replicas > 0


def list_planned(system: System, solution: Solution) -> Iterator[Allocation]:
    """Yield what each server has by a plan, which is what runs where no decision is possible."""
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        planned = server.current if is_kept(server, decision) else decision.allocation
        yield planned or Allocation()


def _build_server_parts(
    planned: Iterable[tuple[Server, Allocation]], catalogue: Catalogue, money: Money, servers: int
) -> ServerParts:
    by_name = {server.name: (server, allocation) for server, allocation in planned}

    def find(name: str) -> Sequence[ServerPart]:
        if name not in by_name:
            return ()
        server, allocation = by_name[name]
        return list_parts(server.service_class, server.model, allocation, catalogue)

    return ServerParts(find, money, servers)


def list_parts(
    service_class: str, model: str, allocation: Allocation, catalogue: Catalogue
) -> Sequence[ServerPart]:
    """Return what an allocation of a server has of each accelerator."""
    parts = []
    for part in allocation.parts if allocation.accelerator else ():
        card_type, cards = catalogue.cards_per_replica(model, part.accelerator, part.role)
        name, number = place_of(part.accelerator, part.role), part.replicas
        parts.append(ServerPart(service_class, name, card_type, number, number * cards, part.cost))
    return parts


def format_replicas(allocation: Allocation, model: str, catalogue: Catalogue) -> str:
    """Return replicas of a model, each with its cards; a dash if nothing runs."""
    return catalogue.placement(model, allocation) if allocation.accelerator else "-"


def list_decision_notes(decisions: Iterable[Decision]) -> Iterator[str]:
    """Yield why servers get less than they need, and the warnings of their allocations."""
    notes = []
    for decision in decisions:
        if decision.reason is not Reason.ALLOCATED:
            notes.append((decision.server, decision.message))
        notes += [(decision.server, f"warning: {warning}") for warning in decision.warnings]
    return group_notes(notes)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is decided for a server, every option that it has, and what would serve it."""

    decision: Decision
    options: Sequence[Option]
    remedies: Sequence[Remedy]

    def to_json(self) -> dict[str, object]:
        """Return the options and the remedies as JSON."""
        return {
            "options": encode_explanation(self.options),
            "remedies": encode_remedies(self.remedies),
        }


def explain_decision(system: System, solution: Solution, name: str) -> Explanation:
    """Explain what is decided for the server of this name; that takes several optimizations."""
    return Explanation(
        next(d for d in solution.decisions if d.server == name),
        with_choice(explain(system, name), system, solution, name),
        remedies(system, solution, name),
    )


def describe_explanation(
    system: System, found: Explanation, money: Money = CENTS, doubts: Iterable[str] = ()
) -> Iterator[Part]:
    """Yield the options, doubts about their data, what is not computed, and the remedies."""
    yield from describe_options(found.options, money)
    yield from doubts
    yield from describe_saved_work(system, found.decision.server)
    yield from describe_remedies(found.decision, found.remedies)


def describe_options(options: Sequence[Option], money: Money = CENTS) -> Iterator[Part]:
    """Yield every accelerator for one server, the best first: the choice, and why not others."""
    ttft = has_ttft(options)
    rows = [_format_option(option, money, ttft=ttft) for option in options]
    headings = ("ACCELERATOR", "CHOSEN", ">REPLICAS", ">BATCH", ">CARDS", "TYPE", ">COST", ">SCORE")
    latencies = (*list_latency_headings(ttft=ttft), ">MAX RATE", "WHY NOT")
    optional = ("TYPE", "BATCH", "MAX RATE", BAND, "WAIT MS", "TTFT MS", "CARDS")
    table = TextTable((*headings, *latencies), rows, optional)
    yield table.with_last(BAND, list(map(format_origin, options)))
    yield from money.named()
    yield SCORE
    if warnings := [warning for option in options for warning in option.warnings]:
        yield ""
        yield from (f"warning: {warning}" for warning in warnings)


def _format_option(option: Option, money: Money, *, ttft: bool) -> tuple[str, ...]:
    if option.reason:
        return (option.accelerator, *[""] * (10 + ttft), option.reason)
    chosen = "" if option.chosen is None else f"{option.chosen} of {option.replicas}"
    return (
        option.accelerator,
        "yes" if option.chosen == option.replicas else chosen,
        str(option.replicas),
        str(option.max_batch_size),
        str(option.cards),
        option.type,
        money.amount(option.cost),
        money.amount(option.value),
        *format_latencies(option, ttft=ttft),
        f"{option.max_rate:.2f}",
        option.lost,
    )


def describe_saved_work(system: System, name: str) -> Iterator[Part]:
    """Yield what a server need not compute: cached prompts, and steps; nothing if it is all."""
    current = next(server.current for server in system.servers if server.name == name)
    if current.load.cached_tokens:
        with_prompts = [part for part in current.parts if part.role is not Role.DECODE]
        warm = sum(part.warm_replicas for part in with_prompts)
        replicas = sum(part.replicas for part in with_prompts)
        inputs, cached = current.load.input_tokens, current.load.cached_tokens
        yield ""
        yield describe_cached_prompts(inputs, cached, warm, replicas)
    if current.load.tokens_per_step > 1:
        yield ""
        yield (
            f"a step makes {current.load.tokens_per_step:.3g} tokens of an answer, as drafts are"
            " accepted; profiles with stepParms count on it"
        )


def describe_cached_prompts(inputs: int, cached: int, warm: int, replicas: int) -> str:
    """Return how many input tokens of a request are in prefix caches, and of how many replicas."""
    return (
        f"{cached} of {inputs} input tokens are in the prefix caches of {warm} of"
        f" {replicas} replicas; others compute whole prompts"
    )


def format_origin(prediction: Allocation | Option) -> str:
    """Return where predicted latencies come from, and what they are off by; "" if unknown."""
    return band_of(prediction.origin, prediction.error_percent)


def has_ttft(predictions: Iterable[Allocation | Option]) -> bool:
    """Whether any allocation has a time to first token."""
    return any(p.generation is not Generation.DECODE for p in predictions)


def list_latency_headings(*, ttft: bool) -> tuple[str, ...]:
    """Return the headings of the latencies, with or without the time to first token."""
    return (">ITL MS", ">WAIT MS", ">TTFT MS")[: 2 + ttft]


def format_latencies(prediction: Allocation | Option, *, ttft: bool) -> tuple[str, ...]:
    """Return the cells below the headings of the latencies."""
    latencies = (prediction.itl_ms, prediction.wait_ms, prediction.ttft_ms)
    return tuple(f"{latency:.2f}" for latency in latencies[: 2 + ttft])


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """Replicas of a server: `now`, and those that it gets with their cost, of each role."""

    now: int
    parts: Sequence[tuple[int, float]]


def list_replicas(system: System, solution: Solution) -> Iterator[PlannedReplicas]:
    """Yield the replicas of each server, now and by a plan."""
    for server, whole in zip(system.servers, list_planned(system, solution), strict=True):
        parts = [(part.replicas, part.cost) for part in whole.roles or (whole,)]
        yield PlannedReplicas(server.current.replicas, parts)


def warn_of_single_replicas(
    servers: Iterable[PlannedReplicas], money: Money = CENTS
) -> Iterator[str]:
    """Yield how many servers are to have a single replica, and what a second one costs, if any."""
    alone = [server for server in servers if any(count == 1 for count, _ in server.parts)]
    if not alone:
        return
    price = sum(cost for server in alone for count, cost in server.parts if count == 1)
    more = sum(server.now > 1 for server in alone)
    had = f" ({more} of them {'has' if more == 1 else 'have'} more now)" if more else ""
    few = "1 server has" if len(alone) == 1 else f"{len(alone)} servers have"
    each = "2" if len(alone) == 1 else "2 each"
    yield f"{few} a single replica; {each} would cost {money.amount(price)} more{had}"


def tabulate_cards(uses: Iterable[CapacityUse], money: Money = CENTS) -> TextTable:
    """Return the cards by type, with the worth of one more card if the solver reports it.

    HELD counts the cards of servers for which no decision is possible; AVAILABLE counts all. A
    tilde before a price says that it is estimated.
    """
    uses = list(uses)
    columns: Columns[CapacityUse] = {
        "CARDS": lambda use: use.type,
        ">USED": lambda use: str(use.used),
        ">HELD": lambda use: str(use.held),
        ">AVAILABLE": lambda use: str(use.available),
        ">PRICE": lambda use: format_card_worth(
            use.price, use.gain, money, estimated=use.estimated
        ),
    }
    table = TextTable.of(uses, columns)
    is_priced = any(use.price is not None or use.gain is not None for use in uses)
    return table if is_priced else table.without("PRICE")


def format_card_worth(
    price: float | None, gain: Gain | None, money: Money = CENTS, *, estimated: bool
) -> str:
    """Return what one more card saves, or the load that it serves [requests/min].

    A tilde stands before an estimate.
    """
    about = "~" if estimated else ""
    if gain is not None:
        return f"{about}+{gain.load:.2f} req/min of priority {gain.priority}"
    return "-" if price is None else f"{about}{money.amount(price)}"


def tabulate_levels(levels: Iterable[Level]) -> TextTable:
    """Return the load served by priority, with the most that is proven possible."""
    columns: Columns[Level] = {
        ">PRIORITY": lambda level: str(level.priority),
        ">SERVED": lambda level: f"{level.served:.2f}",
        ">AT MOST": lambda level: f"{level.bound:.2f}",
        ">GAP": lambda level: f"{level.gap:.2g}",
    }
    return TextTable.of(levels, columns)


def describe_comparison(
    comparison: Comparison, system: System, money: Money = CENTS
) -> Iterator[Part]:
    """Yield servers that change, why they get less than they need, totals and cards."""
    if not comparison.differences:
        yield "nothing changes: every server gets the same as without"
        return
    before, after = comparison.before, comparison.after
    yield tabulate_differences(comparison.differences, system, money)
    yield ""
    if notes := list(list_decision_notes(d.after for d in comparison.differences)):
        yield from notes
        yield ""
    yield (
        f"served: {served(before)} -> {served(after)} of {len(after.decisions)} servers;"
        f" cost {money.amount(before.cost)} -> {money.amount(after.cost)} {money.rate}"
        f" ({money.change(after.cost - before.cost)})"
    )
    if before.capacity or after.capacity:
        uses = [{use.type: use for use in solution.capacity} for solution in (before, after)]
        rows = []
        for name in sorted(uses[0] | uses[1]):
            first, then = (of.get(name, CapacityUse(name, 0, 0)) for of in uses)
            cells = (first.used, then.used, first.held, then.held, first.available, then.available)
            rows.append((name, *map(str, cells)))
        headings = ("CARDS", ">USED", ">USED:AFTER", ">HELD", ">HELD:AFTER", ">AVAILABLE")
        yield ""
        yield TextTable((*headings, ">AVAILABLE:AFTER"), rows)


def tabulate_differences(
    differences: Sequence[DecisionDifference], system: System, money: Money = CENTS
) -> TextTable:
    """Return the servers that change; only headings where nothing does."""
    ttft = has_ttft(d.after.allocation for d in differences if d.after.allocation)
    catalogue = Catalogue(system)
    servers = {server.name: server for server in system.servers}
    rows, planned = [], list[tuple[Server, Allocation]]()
    for difference in differences:
        server, cells = servers.get(difference.server), list[str]()
        model = server.model if server else ""
        for decision in (difference.before, difference.after):
            found = decision.allocation
            cost = money.amount(found.cost) if found else ""
            cells += (format_replicas(found, model, catalogue) if found else "-", cost)
        after = difference.after.allocation
        if server and after:
            planned.append((server, after))
        latencies = format_latencies(after, ttft=ttft) if after else [""] * (2 + ttft)
        rows.append((difference.server, *cells, *latencies, difference.after.reason))
    placements = ("SERVER", "BEFORE", ">BEFORE:COST", "AFTER", ">AFTER:COST")
    headings = (*placements, *list_latency_headings(ttft=ttft), "REASON")
    optional = ("WAIT MS", "ITL MS", "TTFT MS", "BEFORE COST", "AFTER COST")
    parts = _build_server_parts(planned, catalogue, money, len(servers))
    return TextTable(headings, rows, optional, parts)


def describe_remedies(decision: Decision, found: Iterable[Remedy]) -> Iterator[Part]:
    """Yield why a server gets too little, and its remedies; nothing if it is served."""
    if decision.reason is Reason.ALLOCATED:
        return
    yield ""
    yield f"{decision.server}: {decision.message}"
    lines = [f"- {remedy.message}: --set {remedy.change}" for remedy in found]
    yield from lines or ["no single change of cards, targets or load is known that would serve it"]
