"""The objects of a namespace -> the pages of its Models: what each does where, and what runs."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from statistics import median
from typing import NamedTuple

from inferno_operator.cli.kubectl.choices import choose_model
from inferno_operator.cli.kubectl.console.page import ConsolePage, SeenNamespace
from inferno_operator.cli.options import Money
from inferno_operator.cli.tables.servers import (
    build_catalogue,
    describe_conditions,
    find_cost,
    format_cost,
    format_placement,
)
from inferno_operator.cli.tables.table import Part, TextTable, format_age, format_number
from inferno_operator.controllers.planning.conversions import price_current
from inferno_operator.pages.charts import Chart, Frame, Named, draw_lines
from inferno_operator.pages.html import KeyFigure
from inferno_operator.resources import (
    CalibratedData,
    Model,
    PerformanceData,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import CALIBRATED
from inferno_operator.resources.observation import Observation, only, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role

ABOVE = 1.05  # height of an axis, where the highest value is 1
MARKED = 3  # Servers farthest from what was predicted, which have their names in a chart

# Which of the numbers plans are made with, by `spec.calibrate`.
DATA_IN_USE = {
    "Use": "Plans take the upper confidence of the calibration where there is one.",
    "Report": "Plans take the configured data; the calibration is only shown (calibrate: Report).",
    "Off": "Plans take the configured data; nothing is calibrated (calibrate: Off).",
}

# A time alone, and what each request of the batch or each token adds [ms].
Line = tuple[float, float]


def view_models(seen: SeenNamespace) -> ConsolePage:
    """All Models: where they may run, whether they are calibrated, and what runs."""
    models = sorted(only(Model, readable(seen.objects)), key=lambda model: model.metadata.name)
    priced = _list_priced_servers(seen.objects, build_catalogue(seen.objects))
    rows = []
    for model in models:
        servers = [server for server in priced if server.spec.model == model.spec.name]
        calibrated = model.status.condition(CALIBRATED)
        rows.append(
            (
                model.metadata.name,
                model.spec.name,
                str(len(model.spec.data)),
                model.spec.calibrate,
                calibrated.reason if calibrated else "-",
                str(len(servers)),
                str(_count_replicas(servers)),
                seen.money.amount(_sum_costs(servers)),
            )
        )
    headings = ("MODEL", "NAME", ">ACCELERATORS", "CALIBRATE", "CALIBRATED")
    table = TextTable((*headings, ">SERVERS", ">REPLICAS", ">COST"), rows)
    no_models = "No Models in this namespace: apply yours, or try `inferno sample`."
    return ConsolePage(
        title="Models",
        parts=(table if rows else no_models,),
        document=lambda: [model.to_json() for model in models],
    )


def view_model(seen: SeenNamespace, name: str) -> ConsolePage:
    """What a Model does on each accelerator, where the numbers come from, and what runs."""
    model = choose_model(seen.objects, seen.name, name)
    catalogue = build_catalogue(seen.objects)
    priced = _list_priced_servers(seen.objects, catalogue)
    servers = [server for server in priced if server.spec.model == model.spec.name]
    usable = [data for data in model.status.calibration if data.decode_parms or data.step_parms]
    money = seen.money
    cost_now = f"{money.amount(_sum_costs(servers))} {money.rate} now"
    return ConsolePage(
        title=f"Model {model.metadata.name}",
        parts=tuple(_describe_model(model, servers, catalogue, seen.now, money)),
        document=lambda: {"model": model.to_json(), "servers": [s.to_json() for s in servers]},
        figures=(
            KeyFigure("Accelerators", str(len(model.spec.data)), "with performance data"),
            KeyFigure("Calibrated", str(len(usable)), f"calibrate: {model.spec.calibrate}"),
            KeyFigure("Servers", str(len(servers))),
            KeyFigure("Replicas", str(_count_replicas(servers)), cost_now),
        ),
        charts=(*_draw_calibrations(model, servers), *draw_agreements(servers)),
    )


def _list_priced_servers(observations: Sequence[Observation], catalogue: Catalogue) -> list[Server]:
    """Return the Servers by name, with what they cost now also where nobody has written it."""
    servers = only(Server, readable(observations))
    priced = [with_current(server, price_current(server, catalogue)) for server in servers]
    return sorted(priced, key=lambda server: server.metadata.name)


def with_current(server: Server, current: ServerAllocation | None) -> Server:
    """Return a Server with another current allocation."""
    spec = server.spec.model_copy(update={"current_alloc": current})
    return server.model_copy(update={"spec": spec})


def _count_replicas(servers: Sequence[Server], accelerator: str = "") -> int:
    return sum(
        part.num_replicas
        for server in servers
        for part in (server.spec.current_alloc.parts if server.spec.current_alloc else ())
        if accelerator in ("", part.accelerator)
    )


def _sum_costs(servers: Sequence[Server]) -> float:
    return sum(find_cost(server.spec.current_alloc) for server in servers)


def _describe_model(
    model: Model,
    servers: Sequence[Server],
    catalogue: Catalogue,
    now: datetime,
    money: Money,
) -> Iterator[Part]:
    calibration = {data.acc: data for data in model.status.calibration}
    rows = []
    for data in model.spec.data:
        _, cards = catalogue.cards_per_replica(model.spec.name, data.acc, Role(data.role))
        alone, slope = _find_step_line(data, data.at_tokens)
        calibrated = calibration.get(data.acc)
        unknown = ("-", "configured", *[""] * 5)
        rows.append(
            (
                data.acc,
                str(cards),
                str(data.max_batch_size),
                format_number(alone + slope),
                format_number(alone + slope * data.max_batch_size),
                *(_format_calibration(calibrated, now) if calibrated else unknown),
                str(_count_replicas(servers, data.acc)),
            )
        )
    parameters = (">MAX BATCH", ">ALONE:STEP", ">FULL:STEP", ">CALIBRATED:STEP")
    facts = ("CALIBRATION", ">WINDOWS", ">BATCHES", ">RESIDUAL", ">DRIFT", ">AGE")
    yield TextTable(("ACCELERATOR", ">CARDS", *parameters, *facts, ">REPLICAS"), rows)
    yield DATA_IN_USE[model.spec.calibrate]
    yield from (f"{data.acc}: {data.message}" for data in calibration.values() if data.message)
    yield from _tabulate_rejected(calibration.values())
    if servers:
        label = partial(catalogue.label, model.spec.name)
        running = [
            (
                server.metadata.name,
                server.spec.service_class,
                format_placement(server.spec.current_alloc, label),
                format_placement(server.spec.desired_alloc, label),
                format_cost(server.spec.current_alloc, money),
            )
            for server in servers
        ]
        yield TextTable(("SERVER", "CLASS", "CURRENT", "DESIRED", ">COST"), running)
    yield from describe_conditions(model.status.conditions, now)


def _format_calibration(calibrated: CalibratedData, now: datetime) -> Sequence[str]:
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


def _tabulate_rejected(calibration: Iterable[CalibratedData]) -> Iterator[TextTable]:
    rows = []
    for data in calibration:
        windows = data.rows + sum(part.rows for part in data.rejected)
        rows += [
            (part.reason, data.acc, str(part.rows), f"{part.rows / windows:.0%}")
            for part in data.rejected
            if part.rows
        ]
    if rows:
        yield TextTable(("NOT USED BECAUSE", "ACCELERATOR", ">WINDOWS", ">OF ALL"), rows)


def _find_step_line(data: PerformanceData, tokens: int) -> Line:
    """Find the line of decode steps of requests that have so many tokens in the cache each."""
    if data.step_parms:
        return data.step_parms.alpha, data.step_parms.kappa * tokens
    if data.perf_parms:
        return data.perf_parms.alpha, data.perf_parms.beta + data.perf_parms.gamma * tokens
    if data.decode_parms:
        return data.decode_parms.alpha, data.decode_parms.beta
    return data.alpha or 0.0, data.beta or 0.0


class MeasuredReplica(NamedTuple):
    """The mean replica of a Server: its batch [requests], its input tokens, its latencies [ms]."""

    server: str
    batch: float
    tokens: float
    itl_ms: float
    prefill_ms: float


def _list_replicas(servers: Sequence[Server], accelerator: str) -> Iterator[MeasuredReplica]:
    """Yield what is measured of the Servers that run on one accelerator only."""
    for server in servers:
        measured, current = server.status.measured, server.spec.current_alloc
        parts = current.parts if current else ()
        if {part.accelerator for part in parts if part.num_replicas} != {accelerator}:
            continue
        if measured and measured.running and measured.replicas and measured.replicas.reporting:
            yield MeasuredReplica(
                server=server.metadata.name,
                batch=measured.running / measured.replicas.reporting,
                tokens=measured.avg_computed_tokens or measured.avg_in_tokens or 0.0,
                itl_ms=measured.itl_average or 0.0,
                prefill_ms=(measured.ttft_average or 0.0) - (measured.wait_average or 0.0),
            )


def _draw_calibrations(model: Model, servers: Sequence[Server]) -> Iterator[Chart]:
    """Yield the times of a step and of a prefill on each accelerator that is calibrated.

    Dots are Servers of the model that run there, as they are measured now. A prefill takes the
    input tokens of all requests of the batch.
    """
    calibration = {data.acc: data for data in model.status.calibration}
    for data in model.spec.data:
        found, replicas = calibration.get(data.acc), list(_list_replicas(servers, data.acc))
        if found and found.expected and found.decode_parms:
            expected, upper = found.expected, found.decode_parms
            steps = [
                Named(part.server, part.batch, part.itl_ms) for part in replicas if part.itl_ms
            ]
            alone, slope = _find_step_line(data, data.at_tokens)
            words = (
                f"Step on {data.acc}: calibrated {expected.alpha:.3g} ms + {expected.beta:.3g} ms"
                " for each request, shaded up to its upper confidence; dashed, as configured:"
                f" {alone:.3g} ms + {slope:.3g} ms{'; dots: ITL of Servers now' if steps else ''}"
            )
            lines = ((alone, slope), (expected.alpha, expected.beta), (upper.alpha, upper.beta))
            labels = (data.acc, "batch [requests]", "step [ms]")
            yield _draw_fit(labels, *lines, max(1.0, data.max_batch_size), steps, words)
        if found and found.prefill and found.prefill_parms:
            fitted, most, known = found.prefill, found.prefill_parms, data.prefill_parms
            prefills = [
                Named(part.server, part.batch * part.tokens, part.prefill_ms)
                for part in replicas
                if part.tokens and part.prefill_ms > 0
            ]
            words = (
                f"Prefill on {data.acc}: calibrated {fitted.gamma:.3g} ms + {fitted.delta:.3g} ms"
                " for each input token, shaded up to its upper confidence"
                + ("; dashed, as configured" if known else "")
                + ("; dots: TTFT without the wait of Servers now" if prefills else "")
            )
            yield _draw_fit(
                (f"{data.acc}, prefill", "input tokens of the batch", "prefill [ms]"),
                (known.gamma, known.delta) if known else None,
                (fitted.gamma, fitted.delta),
                (most.gamma, most.delta),
                (found.avg_in_tokens or 1.0) * max(found.most_batch or 1.0, 1.0),
                prefills,
                words,
            )


def _draw_fit(
    labels: tuple[str, str, str],
    configured: Line | None,
    fitted: Line,
    upper: Line,
    end: float,
    dots: Sequence[Named],
    words: str,
) -> Chart:
    """Draw a fitted line with the band to its upper confidence, a configured one, and dots."""
    end = max([end, *(point.x for point in dots)])
    dashed, line, edge = (
        [(x, found[0] + found[1] * x) for x in (0.0, end)] if found else []
        for found in (configured, fitted, upper)
    )
    values = [*(y for _, y in (*dashed, *line, *edge)), *(point.y for point in dots)]
    frame = Frame(*labels, end, max(values) * ABOVE or 1.0)
    lines = (("bound", dashed), ("line", line))
    return draw_lines(frame, lines, words, dots, band=(*line, *reversed(edge)))


def draw_agreements(servers: Sequence[Server]) -> Iterator[Chart]:
    """Yield what was predicted of each latency against what is measured of it, by Server."""
    for title, field in (("ITL", "itl_average"), ("TTFT", "ttft_average")):
        points = [
            Named(server.metadata.name, predicted, measured)
            for server in servers
            if (predicted := getattr(server.spec.desired_alloc, field, None))
            and (measured := getattr(server.status.measured, field, None))
        ]
        if not points:
            continue
        end = max(max(point.x, point.y) for point in points) * ABOVE
        frame = Frame(
            f"{title}, measured and predicted", "predicted [ms]", "measured [ms]", end, end
        )
        farthest = {point.name for point in sorted(points, key=_measure_error)[-MARKED:]}
        words = (
            f"{title} predicted and measured, Servers: {len(points)}; dashed: both the same;"
            f" the median difference is {median(map(_measure_error, points)):.0%}"
        )
        yield draw_lines(frame, [("bound", [(0.0, 0.0), (end, end)])], words, points, farthest)


def _measure_error(point: Named) -> float:
    return abs(point.y - point.x) / point.x
