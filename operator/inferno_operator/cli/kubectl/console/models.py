"""The objects of a namespace -> the pages of its Models: what each does where, and what runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from inferno_operator.cli.kubectl.console.calibrations import (
    agreements,
    calibration_charts,
    step_line,
)
from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.kubectl.selection import choose_model
from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.tables.cluster import (
    catalogue_of,
    cost,
    cost_cell,
    placement,
    with_current,
)
from inferno_operator.cli.tables.measurement import number
from inferno_operator.cli.tables.solution import Part, TextTable
from inferno_operator.cli.tables.top import age, condition_parts
from inferno_operator.controllers.planning.allocations import Label, priced_current
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.resources import CalibratedData, Model, PerformanceData, Server
from inferno_operator.resources.conditions import CALIBRATED
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.system import Role


def models_view(observations: Sequence[Observation], money: Money = CENTS) -> ConsolePage:
    """All Models: where they may run, whether they are calibrated, and what runs."""
    models = _models(observations)
    servers = _servers(observations, catalogue_of(observations))
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
    catalogue = catalogue_of(observations)
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
    models = [resource for resource in readable(observations) if isinstance(resource, Model)]
    return sorted(models, key=lambda model: model.metadata.name)


def _servers(observations: Sequence[Observation], catalogue: Catalogue) -> list[Server]:
    """The Servers by name, with what they cost now also where nobody has written it."""
    servers = [
        with_current(resource, priced_current(resource, catalogue))
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


def _replicas(servers: Sequence[Server], accelerator: str = "") -> int:
    """Replicas that run, on one accelerator or on all."""
    return sum(
        part.num_replicas
        for server in servers
        for part in (server.spec.current_alloc.parts if server.spec.current_alloc else ())
        if accelerator in ("", part.accelerator)
    )


def _cost(servers: Sequence[Server]) -> float:
    return sum(cost(server.spec.current_alloc) for server in servers)


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
    yield from condition_parts(model.status.conditions, now)


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
        number(alone + slope),
        number(alone + slope * data.max_batch_size),
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
        number(line.alpha + line.beta) if line else "-",
        calibrated.reason,
        str(calibrated.rows),
        "-" if None in batches else f"{batches[0]:.3g} to {batches[1]:.3g}",
        f"{calibrated.decode.residual:.1%}" if calibrated.decode else "-",
        "-" if calibrated.shift is None else f"{calibrated.shift:+.0%}",
        age(calibrated.time, now),
    )


def _runs(servers: Sequence[Server], label: Label, money: Money) -> TextTable:
    rows = [
        (
            server.metadata.name,
            server.spec.service_class,
            placement(server.spec.current_alloc, label),
            placement(server.spec.desired_alloc, label),
            cost_cell(server.spec.current_alloc, money),
        )
        for server in servers
    ]
    return TextTable(("SERVER", "CLASS", "CURRENT", "DESIRED", ">COST"), rows)
