"""Text output of the command line: a solution, and the options of a server.

Costs are in cents/hour where no currency is asked for, latencies in ms, rates in requests/min.
"""

from collections.abc import Iterable, Iterator, Sequence
from csv import writer
from dataclasses import dataclass
from io import StringIO

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.runtime.texts import listed
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import Option
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import (
    CapacityUse,
    Certificate,
    Decision,
    Gain,
    Level,
    Reason,
    Solution,
)
from inferno_optimizer.system import Allocation, Generation, Role, Server, System, band_of

DIGITS = 9
"""Decimals of a gap; further ones are rounding."""

SCORE = "SCORE: change of cost plus the penalty of a move; lower is better"

NAMES_SHOWN = 5
"""Largest number of servers that a note names."""

UNITS = dict.fromkeys(("LOAD", "MAX RATE", "SERVED", "AT MOST"), "REQ/MIN")
"""Units of columns by their names, where tables are read without a page that says them."""

GAP = "  "
"""What stands between columns."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows; a heading that begins with `>` is for a column of numbers.

    A heading such as `>DESIRED:COST` is of a column that belongs to the one before the colon: COST
    is shown where that one is, DESIRED COST elsewhere. `optional` are the columns that a narrow
    terminal does not show, the first to go first, each as `name_of` returns it.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    optional: Sequence[str] = ()

    def __str__(self) -> str:
        """Return columns of plain text; each row is one line of any length, as in kubectl."""
        return "\n".join(GAP.join(cells).rstrip() for cells in self.lines())

    def lines(self) -> list[list[str]]:
        """Return titles and rows, with the cells of each column padded to the same width."""
        lines = [self._titles(), *self.rows]
        sides = [">" if heading.startswith(">") else "<" for heading in self.headings]
        layout = [f"{{:{s}{w}}}" for s, w in zip(sides, self._widths(), strict=True)]
        return [[c.format(cell) for c, cell in zip(layout, line, strict=True)] for line in lines]

    def records(self) -> list[list[str]]:
        """Return unique names of the columns, and the rows."""
        return [list(map(name_of, self.headings)), *map(list, self.rows)]

    def within(self, width: int) -> "tuple[TextTable, Sequence[str]]":
        """Return the table without the columns that are too many for a width, and their names."""
        table, left_out = self, list[str]()
        names = set(map(name_of, self.headings))
        for name in (name for name in self.optional if name in names):
            if table.width() <= width:
                break
            table = table.without(name)
            left_out.append(name)
        return table, left_out

    def width(self) -> int:
        """Return the number of characters of a line."""
        return sum(self._widths()) + len(GAP) * (len(self.headings) - 1)

    def without(self, *names: str) -> "TextTable":
        """Return the table without some columns."""
        kept = [
            place for place, heading in enumerate(self.headings) if name_of(heading) not in names
        ]
        rows = [[row[place] for place in kept] for row in self.rows]
        return TextTable([self.headings[place] for place in kept], rows, self.optional)

    def with_last(self, heading: str, cells: Sequence[str]) -> "TextTable":
        """Return the table with one more column; as it is where no cell of that says anything."""
        if not any(cells):
            return self
        rows = [(*row, cell) for row, cell in zip(self.rows, cells, strict=True)]
        return TextTable((*self.headings, heading), rows, self.optional)

    def _widths(self) -> list[int]:
        return [max(map(len, cells)) for cells in zip(self._titles(), *self.rows, strict=True)]

    def _titles(self) -> list[str]:
        names = {"", *map(name_of, self.headings)}
        parts = (heading.removeprefix(">").rpartition(":") for heading in self.headings)
        titles = [title if owner in names else f"{owner} {title}" for owner, _, title in parts]
        return list(map(with_unit, titles))


def name_of(heading: str) -> str:
    """Return the unique name of a column."""
    return heading.removeprefix(">").replace(":", " ")


def with_unit(name: str) -> str:
    """Return the name of a column with its unit, if it has one that its name does not say."""
    return f"{name} {UNITS[name]}" if name in UNITS else name


Part = TextTable | str


def first_table(parts: Iterable[Part], like: TextTable | None = None) -> TextTable | None:
    """Return the table that a result is about; None if it has no table.

    It is the first one; where the first one may be about something else, it begins with the same
    column as the one that it is `like`.
    """
    first = next((part for part in parts if isinstance(part, TextTable)), None)
    if first is None or like is None or first.headings[0] == like.headings[0]:
        return first
    return None


def csv_text(parts: Iterable[Part]) -> str:
    """Return the first table as CSV (RFC 4180), each column with a name of its own.

    Raises
    ------
    InputError
        There is no table.
    """
    table = first_table(parts)
    if table is None:
        raise InputError("there is no table to print as CSV: take another --output")
    text, (names, *rows) = StringIO(), table.records()
    writer(text).writerows([list(map(with_unit, names)), *rows])
    return text.getvalue()


def solution_parts(system: System, solution: Solution, money: Money = CENTS) -> Iterator[Part]:
    """Yield servers with their current and planned allocations, totals, cards and the proof."""
    yield _servers(system, solution, money)
    yield ""
    if notes := list(decision_notes(solution.decisions)):
        yield from notes
        yield ""
    yield _totals(system, solution, money)
    yield from single_replicas(replicas_planned(system, solution), money)
    if solution.capacity:
        yield ""
        yield cards_table(solution.capacity, money)
    yield ""
    if levels := solution.certificate.levels:
        yield levels_table(levels)
        yield ""
    yield proof(solution.certificate)
    yield from uncertain_data(a.origin for a in solution.allocations.values())
    yield from failed_steps(solution.certificate)


def option_parts(options: Iterable[Option], money: Money = CENTS) -> Iterator[Part]:
    """Yield every accelerator for one server, the best first: the choice, and why not others."""
    options = list(options)
    headings = ("ACCELERATOR", "CHOSEN", ">REPLICAS", ">BATCH", ">CARDS", "TYPE", ">COST", ">SCORE")
    ttft = with_ttft(options)
    latencies = (*latency_headings(ttft=ttft), ">MAX RATE", "WHY NOT")
    rows = [_option_row(option, money, ttft=ttft) for option in options]
    optional = ("TYPE", "BATCH", "MAX RATE", BAND, "WAIT MS", "TTFT MS", "CARDS")
    table = TextTable((*headings, *latencies), rows, optional)
    yield table.with_last(BAND, list(map(band, options)))
    yield from money.named()
    yield SCORE
    if warnings := [warning for option in options for warning in option.warnings]:
        yield ""
        yield from (f"warning: {warning}" for warning in warnings)


def saved_work_parts(system: System, name: str) -> Iterator[Part]:
    """Yield what a server need not compute: cached prompts, and steps; nothing if it is all."""
    current = next(server.current for server in system.servers if server.name == name)
    if current.load.cached_tokens:
        with_prompts = [part for part in current.parts if part.role is not Role.DECODE]
        warm = sum(part.warm_replicas for part in with_prompts)
        yield ""
        replicas = sum(part.replicas for part in with_prompts)
        yield cached_prompts(current.load.input_tokens, current.load.cached_tokens, warm, replicas)
    if current.load.tokens_per_step > 1:
        yield ""
        yield accepted_drafts(current.load.tokens_per_step)


def accepted_drafts(tokens_per_step: float) -> str:
    """Return how many tokens a step makes with speculative decoding, and who counts on it."""
    return (
        f"a step makes {tokens_per_step:.3g} tokens of an answer, as drafts are accepted; profiles"
        f" with stepParms count on it"
    )


def cached_prompts(inputs: int, cached: int, warm: int, replicas: int) -> str:
    """Return how many input tokens of a request are in prefix caches, and of how many replicas."""
    return (
        f"{cached} of {inputs} input tokens are in the prefix caches of {warm} of"
        f" {replicas} replicas; others compute whole prompts"
    )


BAND = "LATENCIES"
"""Heading of the column that says where predicted latencies come from."""


def band(prediction: Allocation | Option) -> str:
    """Return where predicted latencies come from, and what they are off by; "" if unknown."""
    return band_of(prediction.origin, prediction.error_percent)


def with_ttft(predictions: Iterable[Allocation | Option]) -> bool:
    """Return whether any allocation has a time to first token."""
    return any(p.generation is not Generation.DECODE for p in predictions)


def latency_headings(*, ttft: bool) -> tuple[str, ...]:
    """Return the headings of the latencies, with or without the time to first token."""
    return (">ITL MS", ">WAIT MS", ">TTFT MS") if ttft else (">ITL MS", ">WAIT MS")


def latency_cells(prediction: Allocation | Option, *, ttft: bool) -> tuple[str, ...]:
    """Return the cells below the headings of the latencies."""
    cells = (f"{prediction.itl_ms:.2f}", f"{prediction.wait_ms:.2f}")
    return (*cells, f"{prediction.ttft_ms:.2f}") if ttft else cells


def _option_row(option: Option, money: Money, *, ttft: bool) -> tuple[str, ...]:
    if option.reason:
        return (option.accelerator, *[""] * (10 + ttft), option.reason)
    return (
        option.accelerator,
        _chosen(option),
        str(option.replicas),
        str(option.max_batch_size),
        str(option.cards),
        option.type,
        money.amount(option.cost),
        money.amount(option.value),
        *latency_cells(option, ttft=ttft),
        f"{option.max_rate:.2f}",
        option.lost,
    )


def _chosen(option: Option) -> str:
    if option.chosen is None:
        return ""
    if option.chosen == option.replicas:
        return "yes"
    return f"{option.chosen} of {option.replicas}"


def _servers(system: System, solution: Solution, money: Money) -> TextTable:
    now = ("SERVER", "CLASS", "MODEL", ">LOAD", "CURRENT", ">CURRENT:COST")
    catalogue = Catalogue(system)
    ttft = with_ttft(solution.allocations.values())
    banded = any(allocation.origin for allocation in solution.allocations.values())
    rows = [
        (
            *_current_cells(server, catalogue, money),
            *_desired_cells(server, decision, catalogue, money, ttft=ttft),
            *([band(decision.allocation or Allocation())] * banded),
            decision.reason,
        )
        for server, decision in zip(system.servers, solution.decisions, strict=True)
    ]
    then = (
        *("DESIRED", ">BATCH", ">DESIRED:COST", *latency_headings(ttft=ttft)),
        *([BAND] * banded),
        "REASON",
    )
    latencies = ("WAIT MS", "ITL MS", "TTFT MS")
    optional = ("CLASS", "BATCH", BAND, *latencies, "MODEL", "CURRENT COST", "LOAD", "CURRENT")
    return TextTable((*now, *then), rows, optional)


def _current_cells(server: Server, catalogue: Catalogue, money: Money) -> tuple[str, ...]:
    return (
        server.name,
        server.service_class,
        server.model,
        f"{server.load.arrival_rate:g}",
        placed(server.current, server.model, catalogue),
        money.amount(server.current.cost),
    )


def _desired_cells(
    server: Server, decision: Decision, catalogue: Catalogue, money: Money, *, ttft: bool
) -> tuple[str, ...]:
    """Return what is decided; where no decision is possible, what runs, which stays."""
    allocation = decision.allocation
    if stays(server, decision):
        current = placed(server.current, server.model, catalogue)
        return (current, "", money.amount(server.current.cost), *[""] * (2 + ttft))
    if allocation is None:
        return ("-", *[""] * (4 + ttft))
    return (
        placed(allocation, server.model, catalogue),
        str(allocation.max_batch_size),
        money.amount(allocation.cost),
        *latency_cells(allocation, ttft=ttft),
    )


def stays(server: Server, decision: Decision) -> bool:
    """Whether what runs stays because no decision is possible."""
    undecided = decision.allocation is None and not decision.reason.decided
    return undecided and server.current.replicas > 0


def placed(allocation: Allocation, model: str, catalogue: Catalogue) -> str:
    """Return replicas of a model, each with its cards; a dash if nothing runs."""
    return catalogue.placement(model, allocation) if allocation.accelerator else "-"


def grouped(notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return pairs of a server and a note as sentences, one for all servers with an equal note."""
    servers: dict[str, list[str]] = {}
    for server, note in notes:
        servers.setdefault(note, []).append(server)
    yield from (f"{listed(names, NAMES_SHOWN)}: {note}" for note, names in servers.items())


def decision_notes(decisions: Iterable[Decision]) -> Iterator[str]:
    """Return why servers get less than they need, and the warnings of their allocations."""
    return grouped((d.server, note) for d in decisions for note in _notes_of(d))


def _notes_of(decision: Decision) -> Iterator[str]:
    if decision.reason is not Reason.ALLOCATED:
        yield decision.message
    yield from (f"warning: {warning}" for warning in decision.warnings)


def _totals(system: System, solution: Solution, money: Money) -> str:
    return (
        f"{len(solution.allocations)} of {len(system.servers)} servers have an allocation; "
        f"cost {money.amount(system.current_cost)} -> {money.amount(solution.cost)} {money.rate}"
    )


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """Replicas of a server: `now`, and those that it gets with their cost, of each role."""

    now: int
    parts: Sequence[tuple[int, float]]


def replicas_planned(system: System, solution: Solution) -> Iterator[PlannedReplicas]:
    """Yield the replicas of each server, now and by a plan."""
    for server, decision in zip(system.servers, solution.decisions, strict=True):
        planned = server.current if stays(server, decision) else decision.allocation
        whole = planned or Allocation()
        parts = [(part.replicas, part.cost) for part in whole.roles or (whole,)]
        yield PlannedReplicas(server.current.replicas, parts)


def single_replicas(servers: Iterable[PlannedReplicas], money: Money = CENTS) -> Iterator[str]:
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


def cards_table(uses: Iterable[CapacityUse], money: Money = CENTS) -> TextTable:
    """Return the cards by type, with the worth of one more card if the solver reports it.

    HELD counts the cards of servers for which no decision is possible; AVAILABLE counts all. A
    tilde before a price says that it is estimated.
    """
    uses = list(uses)
    priced = any(use.price is not None or use.gain is not None for use in uses)
    headings = ("CARDS", ">USED", ">HELD", ">AVAILABLE", *([">PRICE"] * priced))
    return TextTable(headings, [_cards_row(use, money, priced=priced) for use in uses])


def _cards_row(use: CapacityUse, money: Money, *, priced: bool) -> tuple[str, ...]:
    cells = (use.type, str(use.used), str(use.held), str(use.available))
    worth = one_more_card(use.price, use.gain, money, estimated=use.estimated)
    return (*cells, worth) if priced else cells


def one_more_card(
    price: float | None, gain: Gain | None, money: Money = CENTS, *, estimated: bool
) -> str:
    """Return what one more card saves, or the load that it serves [requests/min].

    A tilde stands before an estimate.
    """
    about = "~" if estimated else ""
    if gain is not None:
        return f"{about}+{gain.load:.2f} req/min of priority {gain.priority}"
    return "-" if price is None else f"{about}{money.amount(price)}"


def levels_table(levels: Iterable[Level]) -> TextTable:
    """Return the load served by priority, with the most that is proven possible."""
    rows = [
        (str(level.priority), f"{level.served:.2f}", f"{level.bound:.2f}", f"{level.gap:.2g}")
        for level in levels
    ]
    return TextTable((">PRIORITY", ">SERVED", ">AT MOST", ">GAP"), rows)


def proof(certificate: Certificate) -> str:
    """Return the certificate of a solution as one line."""
    gap = "not known" if certificate.gap is None else f"{round(certificate.gap, DIGITS):.2g}"
    return (
        f"solver {certificate.solver}: {certificate.status}, "
        f"objective {certificate.objective:.2f}, gap {gap}, {certificate.seconds:.3f} s"
    )


def uncertain_data(origins: Iterable[str | None]) -> Iterator[str]:
    """Yield for how many servers the data are estimated, which no gap tells."""
    if estimated := sum(origin == "estimated" for origin in origins):
        servers = f"{estimated} server{'s' if estimated > 1 else ''}"
        yield f"gap and latencies assume exact data; the data of {servers} are estimated: calibrate"


def failed_steps(certificate: Certificate) -> Iterator[str]:
    """Yield a warning for each step of the solver that ended with an error."""
    for text in certificate.failures:
        yield f"warning: the solver failed at {text}; the plan is the best one found without it"
