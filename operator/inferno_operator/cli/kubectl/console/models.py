"""The objects of a namespace -> the pages of its Models: what each does where, and what runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from statistics import median

from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.kubectl.selection import choose_model
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.servers import (
    build_catalogue,
    cost_of,
    describe_conditions,
    format_cost,
    format_placement,
)
from inferno_operator.cli.tables.table import Part, TextTable, format_age, format_number
from inferno_operator.controllers.planning.allocations import Label, priced_current
from inferno_operator.pages.charts import Chart, Frame, Named, agreement_chart, line_chart
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import (
    CalibratedData,
    DecodeParms,
    FittedPrefill,
    Model,
    PerformanceData,
    PrefillParms,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import CALIBRATED
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role

ABOVE = 1.05
"""Height of an axis, where the highest value is 1."""

MARKED = 3
"""Servers farthest from what was predicted, which have their names in a chart."""

Corners = Sequence[tuple[float, float]]

Line = tuple[float, float]
"""Time of a decode step alone, and what each request of the batch adds [ms]."""


def step_line(data: PerformanceData, tokens: int) -> Line:
    """Time of a decode step of requests that have so many tokens in the cache each [ms]."""
    if data.step_parms:
        return data.step_parms.alpha, data.step_parms.kappa * tokens
    if data.perf_parms:
        return data.perf_parms.alpha, data.perf_parms.beta + data.perf_parms.gamma * tokens
    if data.decode_parms:
        return data.decode_parms.alpha, data.decode_parms.beta
    return data.alpha or 0.0, data.beta or 0.0


@dataclass(frozen=True, slots=True)
class MeasuredReplica:
    """The mean replica of a Server: its batch [requests], its input tokens, its latencies [ms]."""

    server: str
    batch: float
    tokens: float
    itl_ms: float
    prefill_ms: float


def measured_replicas(servers: Sequence[Server], accelerator: str) -> Sequence[MeasuredReplica]:
    """What is measured of the Servers that run on one accelerator only."""
    return [
        MeasuredReplica(
            server=server.metadata.name,
            batch=measured.running / measured.replicas.reporting,
            tokens=measured.avg_computed_tokens or measured.avg_in_tokens or 0.0,
            itl_ms=measured.itl_average or 0.0,
            prefill_ms=(measured.ttft_average or 0.0) - (measured.wait_average or 0.0),
        )
        for server in servers
        if (measured := server.status.measured) and measured.running and measured.replicas
        if measured.replicas.reporting and _runs_on(server) == {accelerator}
    ]


def _runs_on(server: Server) -> set[str]:
    current = server.spec.current_alloc
    return {part.accelerator for part in current.parts if part.num_replicas} if current else set()


def calibration_charts(
    model: Model, calibration: Mapping[str, CalibratedData], servers: Sequence[Server]
) -> Iterator[Chart]:
    """Yield the times of a step and of a prefill on each accelerator that is calibrated.

    Dots are Servers of the model that run there, as they are measured now.
    """
    for data in model.spec.data:
        calibrated, replicas = calibration.get(data.acc), measured_replicas(servers, data.acc)
        if calibrated and calibrated.expected and calibrated.decode_parms:
            steps = [
                Named(part.server, part.batch, part.itl_ms) for part in replicas if part.itl_ms
            ]
            yield _step_chart(data, calibrated.expected, calibrated.decode_parms, steps)
        if calibrated and calibrated.prefill and calibrated.prefill_parms:
            prefills = [
                Named(part.server, part.batch * part.tokens, part.prefill_ms)
                for part in replicas
                if part.tokens and part.prefill_ms > 0
            ]
            yield _prefill_chart(
                data, calibrated, calibrated.prefill, calibrated.prefill_parms, prefills
            )


def _points(line: Line, end: float) -> Corners:
    """Both ends of a line, from 0 on."""
    return [(x, line[0] + line[1] * x) for x in (0.0, end)]


def _step_chart(
    data: PerformanceData, expected: DecodeParms, upper: DecodeParms, dots: Sequence[Named]
) -> Chart:
    alone, slope = step_line(data, data.at_tokens)
    batch = max([1.0, data.max_batch_size, *(point.x for point in dots)])
    typed = _points((alone, slope), batch)
    fitted, highest = (_points((part.alpha, part.beta), batch) for part in (expected, upper))
    most = _most((*typed, *fitted, *highest), dots)
    frame = Frame(data.acc, "batch [requests]", "step [ms]", batch, most)
    words = (
        f"Step on {data.acc}: calibrated {expected.alpha:.3g} ms + {expected.beta:.3g} ms for each"
        f" request, shaded up to its upper confidence; dashed, as configured: {alone:.3g} ms +"
        f" {slope:.3g} ms{_dots(dots, 'ITL')}"
    )
    return _fit_chart(frame, typed, fitted, highest, dots, words)


def _prefill_chart(
    data: PerformanceData,
    calibrated: CalibratedData,
    expected: FittedPrefill,
    upper: PrefillParms,
    dots: Sequence[Named],
) -> Chart:
    """Time of a prefill against the input tokens of all requests of the batch."""
    usual = (calibrated.avg_in_tokens or 1.0) * max(calibrated.most_batch or 1.0, 1.0)
    tokens = max([usual, *(point.x for point in dots)])
    typed_parms = data.prefill_parms
    typed = _points((typed_parms.gamma, typed_parms.delta), tokens) if typed_parms else []
    fitted, highest = (_points((part.gamma, part.delta), tokens) for part in (expected, upper))
    most = _most((*typed, *fitted, *highest), dots)
    frame = Frame(f"{data.acc}, prefill", "input tokens of the batch", "prefill [ms]", tokens, most)
    words = (
        f"Prefill on {data.acc}: calibrated {expected.gamma:.3g} ms + {expected.delta:.3g} ms for"
        " each input token, shaded up to its upper confidence"
        + ("; dashed, as configured" if typed_parms else "")
        + _dots(dots, "TTFT without the wait")
    )
    return _fit_chart(frame, typed, fitted, highest, dots, words)


def _most(lines: Iterable[tuple[float, float]], dots: Sequence[Named]) -> float:
    """The end of an axis that has all values."""
    return max(*(y for _, y in lines), *(point.y for point in dots)) * ABOVE or 1.0


def _dots(dots: Sequence[Named], what: str) -> str:
    return f"; dots: {what} of Servers now" if dots else ""


def _fit_chart(
    frame: Frame, typed: Corners, fitted: Corners, upper: Corners, dots: Sequence[Named], words: str
) -> Chart:
    """A fitted line with the band to its upper confidence, a configured one, dashed, and dots."""
    lines = (("bound", typed), ("line", fitted))
    return line_chart(frame, lines, words, dots, band=(*fitted, *reversed(upper)))


def agreements(servers: Sequence[Server]) -> Iterator[Chart]:
    """Yield what was predicted of each latency against what is measured of it, by Server."""
    for title, field in (("ITL", "itl_average"), ("TTFT", "ttft_average")):
        points = [
            Named(server.metadata.name, predicted, measured)
            for server in servers
            if (predicted := getattr(server.spec.desired_alloc, field, None))
            and (measured := getattr(server.status.measured, field, None))
        ]
        if points:
            yield _agreement(title, points)


def _agreement(title: str, points: Sequence[Named]) -> Chart:
    """Predicted and measured values of one latency [ms]; both axes have the same length."""
    most = max(max(point.x, point.y) for point in points) * ABOVE
    frame = Frame(f"{title}, measured and predicted", "predicted [ms]", "measured [ms]", most, most)
    farthest = {point.name for point in sorted(points, key=_error)[-MARKED:]}
    words = (
        f"{title} predicted and measured, Servers: {len(points)}; dashed: both the same;"
        f" the median difference is {median(map(_error, points)):.0%}"
    )
    return agreement_chart(frame, points, farthest, words)


def _error(point: Named) -> float:
    """By how much of the prediction the measured value differs from it."""
    return abs(point.y - point.x) / point.x


def models_view(observations: Sequence[Observation], money: Money = CENTS) -> ConsolePage:
    """All Models: where they may run, whether they are calibrated, and what runs."""
    models = _models(observations)
    servers = _servers(observations, build_catalogue(observations))
    headings = ("MODEL", "NAME", ">ACCELERATORS", "CALIBRATE", "CALIBRATED")
    rows = [_summary(model, _of(model, servers), money) for model in models]
    table = TextTable((*headings, ">SERVERS", ">REPLICAS", ">COST"), rows)
    return ConsolePage(
        title="Models",
        parts=(table,)
        if rows
        else ("No Models in this namespace: apply yours, or samples/small to try it.",),
        document=lambda: [model.to_json() for model in models],
    )


def model_view(
    observations: Sequence[Observation],
    namespace: str,
    name: str,
    now: datetime,
    money: Money = CENTS,
) -> ConsolePage:
    """What a Model does on each accelerator, where the numbers come from, and what runs."""
    model = choose_model(observations, namespace, name)
    catalogue = build_catalogue(observations)
    servers = _of(model, _servers(observations, catalogue))
    calibration = {data.acc: data for data in model.status.calibration}
    return ConsolePage(
        title=f"Model {model.metadata.name}",
        parts=tuple(_parts(model, calibration, servers, catalogue, now, money)),
        document=lambda: {"model": model.to_json(), "servers": [s.to_json() for s in servers]},
        figures=tuple(_figures(model, servers, money)),
        charts=(*calibration_charts(model, calibration, servers), *agreements(servers)),
    )


def _models(observations: Sequence[Observation]) -> list[Model]:
    models = [*only(Model, readable(observations))]
    return sorted(models, key=lambda model: model.metadata.name)


def _servers(observations: Sequence[Observation], catalogue: Catalogue) -> list[Server]:
    """The Servers by name, with what they cost now also where nobody has written it."""
    servers = [
        with_current(resource, price_current(resource, catalogue))
        for resource in readable(observations)
        if isinstance(resource, Server)
    ]
    return sorted(servers, key=lambda server: server.metadata.name)


def _of(model: Model, servers: Sequence[Server]) -> list[Server]:
    return [server for server in servers if server.spec.model == model.spec.name]


def _summary(model: Model, servers: Sequence[Server], money: Money) -> Sequence[str]:
    calibrated = model.status.condition(CALIBRATED)
    return (
        model.metadata.name,
        model.spec.name,
        str(len(model.spec.data)),
        model.spec.calibrate,
        calibrated.reason if calibrated else "-",
        str(len(servers)),
        str(_replicas(servers)),
        money.amount(_cost(servers)),
    )


def with_current(server: Server, current: ServerAllocation | None) -> Server:
    """Return a Server with another current allocation."""
    spec = server.spec.model_copy(update={"current_alloc": current})
    return server.model_copy(update={"spec": spec})


def _replicas(servers: Sequence[Server], accelerator: str = "") -> int:
    """Replicas that run, on one accelerator or on all."""
    return sum(
        part.num_replicas
        for server in servers
        for part in (server.spec.current_alloc.parts if server.spec.current_alloc else ())
        if accelerator in ("", part.accelerator)
    )


def _cost(servers: Sequence[Server]) -> float:
    return sum(cost_of(server.spec.current_alloc) for server in servers)


def _figures(model: Model, servers: Sequence[Server], money: Money) -> Iterator[KeyFigure]:
    usable = [data for data in model.status.calibration if data.decode_parms or data.step_parms]
    yield KeyFigure("Accelerators", str(len(model.spec.data)), "with performance data")
    yield KeyFigure("Calibrated", str(len(usable)), f"calibrate: {model.spec.calibrate}")
    yield KeyFigure("Servers", str(len(servers)))
    cost_now = f"{money.amount(_cost(servers))} {money.rate} now"
    yield KeyFigure("Replicas", str(_replicas(servers)), cost_now)


def _parts(
    model: Model,
    calibration: Mapping[str, CalibratedData],
    servers: Sequence[Server],
    catalogue: Catalogue,
    now: datetime,
    money: Money,
) -> Iterator[Part]:
    parameters = (">MAX BATCH", ">ALONE:STEP", ">FULL:STEP", ">CALIBRATED:STEP")
    facts = ("CALIBRATION", ">WINDOWS", ">BATCHES", ">RESIDUAL", ">DRIFT", ">AGE")
    rows = [
        _row(data, calibration.get(data.acc), servers, _cards(model, data, catalogue), now)
        for data in model.spec.data
    ]
    yield TextTable(("ACCELERATOR", ">CARDS", *parameters, *facts, ">REPLICAS"), rows)
    yield _taken(model)
    yield from (f"{data.acc}: {data.message}" for data in calibration.values() if data.message)
    yield from _rejected(calibration.values())
    if servers:
        yield _runs(servers, partial(catalogue.label, model.spec.name), money)
    yield from describe_conditions(model.status.conditions, now)


def _rejected(calibration: Iterable[CalibratedData]) -> Iterator[TextTable]:
    """Yield a table of the windows of replicas that were not used, and why, if there are any."""
    rows = [
        (part.reason, data.acc, str(part.rows), f"{part.rows / _windows(data):.0%}")
        for data in calibration
        for part in data.rejected
        if part.rows
    ]
    if rows:
        yield TextTable(("NOT USED BECAUSE", "ACCELERATOR", ">WINDOWS", ">OF ALL"), rows)


def _windows(data: CalibratedData) -> int:
    """Windows of replicas that were looked at."""
    return data.rows + sum(part.rows for part in data.rejected)


def _taken(model: Model) -> str:
    """Which of the numbers plans are made with."""
    match model.spec.calibrate:
        case "Use":
            return "Plans take the upper confidence of the calibration where there is one."
        case "Report":
            return (
                "Plans take the configured data; the calibration is only shown (calibrate: Report)."
            )
    return "Plans take the configured data; nothing is calibrated (calibrate: Off)."


def _row(
    data: PerformanceData,
    calibrated: CalibratedData | None,
    servers: Sequence[Server],
    cards: int,
    now: datetime,
) -> Sequence[str]:
    alone, slope = step_line(data, data.at_tokens)
    return (
        data.acc,
        str(cards),
        str(data.max_batch_size),
        format_number(alone + slope),
        format_number(alone + slope * data.max_batch_size),
        *(_facts(calibrated, now) if calibrated else ("-", "configured", *[""] * 5)),
        str(_replicas(servers, data.acc)),
    )


def _cards(model: Model, data: PerformanceData, catalogue: Catalogue) -> int:
    """Cards of one replica."""
    _, cards = catalogue.cards_per_replica(model.spec.name, data.acc, Role(data.role))
    return cards


def _facts(calibrated: CalibratedData, now: datetime) -> Sequence[str]:
    line = calibrated.expected
    batches = (calibrated.least_batch, calibrated.most_batch)
    return (
        format_number(line.alpha + line.beta) if line else "-",
        calibrated.reason,
        str(calibrated.rows),
        "-" if None in batches else f"{batches[0]:.3g} to {batches[1]:.3g}",
        f"{calibrated.decode.residual:.1%}" if calibrated.decode else "-",
        "-" if calibrated.shift is None else f"{calibrated.shift:+.0%}",
        format_age(calibrated.time, now),
    )


def _runs(servers: Sequence[Server], label: Label, money: Money) -> TextTable:
    rows = [
        (
            server.metadata.name,
            server.spec.service_class,
            format_placement(server.spec.current_alloc, label),
            format_placement(server.spec.desired_alloc, label),
            format_cost(server.spec.current_alloc, money),
        )
        for server in servers
    ]
    return TextTable(("SERVER", "CLASS", "CURRENT", "DESIRED", ">COST"), rows)
