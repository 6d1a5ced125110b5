"""Replays -> their page: costs, targets, replicas over time, and the worst times; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from inferno_operator.cli.options.currency import CENTS, Money
from inferno_operator.cli.replay import WORST_TOLD, Replayed, Row, list_class_rows
from inferno_operator.pages.charts import (
    COLOURS,
    Chart,
    Frame,
    Named,
    draw_front,
    draw_lines,
    draw_stack,
)
from inferno_operator.pages.html import ClassShare, KeyFigure, PolicySection, ReplayPage, WorstTime
from inferno_optimizer.replay.account import Cause, Incident, find_worst_incidents
from inferno_optimizer.replay.replay import Scenario
from inferno_optimizer.sizing.queueing import FloatArray, IntArray

PLACES = 160
"""Most places of a chart over time; each is the mean of as many steps."""

ABOVE = 1.05
"""Height of an axis, where the highest value is 1."""


def replay_page(
    title: str, scenario: Scenario, replays: Sequence[Replayed], money: Money = CENTS
) -> ReplayPage:
    """Return the page of replays of one load.

    Parameters
    ----------
    title
        What was replayed.
    scenario
        Servers and load.
    replays
        The replays, one or more.
    money
        The unit of costs.
    """
    sections = _Sections(scenario, replays, money)
    return ReplayPage(
        title=title,
        rate=money.rate,
        figures=tuple(_figures(scenario, replays, money)),
        classes=[row.server for row in list_class_rows(replays[0])],
        front=_front(replays, money),
        policies=[sections.of(replayed) for replayed in replays],
    )


def _figures(scenario: Scenario, replays: Sequence[Replayed], money: Money) -> Iterator[KeyFigure]:
    trace, first = scenario.trace, replays[0]
    hours = first.account.hours
    yield KeyFigure("Load", f"{hours:g} h", f"a decision each {trace.step_s:g}\N{NO-BREAK SPACE}s")
    yield KeyFigure("Requests", f"{first.account.requests.sum():,.0f}")
    accelerators = f"{len(scenario.fleet.accelerators)} accelerators"
    yield KeyFigure("Servers", str(len(scenario.fleet.servers)), accelerators)
    bound = first.bound.total_cost / hours
    yield KeyFigure("Bound", money.amount(bound), f"{money.rate}, with hindsight")
    best = min(replays, key=lambda replayed: replayed.account.total_cost)
    cheapest = money.amount(best.account.total_cost / hours)
    yield KeyFigure("Cheapest", cheapest, f"{money.rate}, {best.policy}")
    kept = max(replays, key=lambda replayed: replayed.account.attainment)
    yield KeyFigure("Most within targets", f"{100 * kept.account.attainment:.2f} %", kept.policy)


def _front(replays: Sequence[Replayed], money: Money) -> Chart:
    points = [
        Named(
            replayed.policy,
            replayed.account.total_cost / replayed.account.hours / money.cents,
            100 * replayed.account.attainment,
        )
        for replayed in replays
    ]
    least = min(point.y for point in points)
    margin = max((100.0 - least) * (ABOVE - 1), 0.1)
    most = max(point.x for point in points) * ABOVE or 1.0
    frame = Frame(
        "Cost and requests within targets",
        money.rate,
        "%",
        most,
        100.0 + margin,
        max(least - margin, 0.0),
    )
    words = "; ".join(f"{p.name}: {p.x:.2f} {money.rate}, {p.y:.2f} %" for p in points)
    return draw_front(frame, points, words)


@dataclass(frozen=True, slots=True)
class _Sections:
    """Sections of policies whose charts have the same axes."""

    scenario: Scenario
    replays: Sequence[Replayed]
    money: Money

    def of(self, replayed: Replayed) -> PolicySection:
        """The section of a policy."""
        account, row = replayed.account, Row.of(replayed, "", slice(None))
        accelerators = self.scenario.fleet.accelerators
        worst = find_worst_incidents(account, self.scenario.trace, accelerators, WORST_TOLD)
        return PolicySection(
            name=replayed.policy,
            cost=self.money.amount(row.cost / account.hours),
            regret=self.money.change(replayed.regret / account.hours),
            of_optimum=f"{100 * replayed.share_of_optimum:.1f} %",
            within=row.within,
            missed_minutes=f"{row.missed_minutes:.0f}",
            replicas=f"{row.replicas:.2f}",
            started=row.started,
            moves=row.moves,
            classes=[ClassShare(each.server, each.within) for each in list_class_rows(replayed)],
            charts=(self._cost(replayed), self._replicas(replayed)),
            worst=[self._time(incident) for incident in worst],
        )

    def _cost(self, replayed: Replayed) -> Chart:
        accounts = (*(each.account for each in self.replays), replayed.bound)
        costs = [account.history.cost / self.money.cents for account in accounts]
        most = max(float(_means(cost).max(initial=0.0)) for cost in costs) * ABOVE or 1.0
        own, bound = (
            _means(account.history.cost / self.money.cents)
            for account in (replayed.account, replayed.bound)
        )
        hours = self._hours(len(own))
        lines = [
            (kind, zip(hours, values.tolist(), strict=True))
            for kind, values in (("bound", bound), ("line", own))
        ]
        frame = Frame("Cost", "hours", self.money.rate, replayed.account.hours, most)
        extremes = f"{own.min():.2f} to {own.max():.2f} {self.money.rate}"
        words = f"Cost of {replayed.policy} over time: {extremes}"
        return draw_lines(frame, lines, f"{words}; dashed: the bound")

    def _replicas(self, replayed: Replayed) -> Chart:
        totals = [each.account.history.replicas.sum(axis=1) for each in self.replays]
        most = max(float(_means(total).max(initial=0.0)) for total in totals) * ABOVE or 1.0
        means = _means(replayed.account.history.on_accelerator)
        layers = _most_used(self.scenario.fleet.accelerators, means)
        frame = Frame("Replicas by accelerator", "hours", "replicas", replayed.account.hours, most)
        words = (
            f"Replicas of {replayed.policy} over time on {', '.join(name for name, _ in layers)}"
        )
        return draw_stack(frame, self._hours(len(means)), layers, words)

    def _hours(self, places: int) -> list[float]:
        """The middle of each place of a chart."""
        hours = self.replays[0].account.hours
        return [(place + 0.5) * hours / places for place in range(places)]

    def _time(self, incident: Incident) -> WorstTime:
        step_s = self.scenario.trace.step_s
        return WorstTime(
            begin=_clock(incident.first * step_s),
            length=f"{(incident.last + 1 - incident.first) * step_s / 60:.0f}",
            server=incident.server,
            service_class=incident.service_class,
            accelerator=incident.accelerator or "none yet",
            outside=f"{incident.outside:,.0f}",
            decided=_decided(incident, step_s),
            cause=_cause(incident),
        )


def _most_used(names: Sequence[str], means: FloatArray) -> list[tuple[str, list[float]]]:
    """Replicas over time on the accelerators that have most of them, and on all others."""
    order = np.argsort(-means.sum(axis=0), kind="stable")
    order = order[means.sum(axis=0)[order] > 0]
    shown = order if len(order) <= COLOURS else order[: COLOURS - 1]
    others = order[len(shown) :]
    layers = [(names[place], means[:, place].tolist()) for place in shown.tolist()]
    if len(others):
        layers.append((f"{len(others)} others", means[:, others].sum(axis=1).tolist()))
    return layers


def _means(values: FloatArray | IntArray) -> FloatArray:
    """The means of steps in a row, at most `PLACES`; the first axis are the steps."""
    places = min(len(values), PLACES)
    edges = np.arange(places + 1) * len(values) // max(places, 1)
    sums = np.add.reduceat(values, edges[:-1], axis=0) if places else values
    sizes = np.diff(edges).reshape(-1, *(1,) * (values.ndim - 1))
    means: FloatArray = sums / np.maximum(sizes, 1)
    return means


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds after the beginning."""
    return str(timedelta(seconds=round(seconds)))


def _decided(incident: Incident, step_s: float) -> str:
    """The last change of the replicas before the worst step."""
    if incident.before == incident.replicas:
        return f"replicas {incident.replicas} from the beginning"
    when = _clock(incident.changed * step_s)
    return f"replicas {incident.before} to {incident.replicas} at {when}"


def _cause(incident: Incident) -> str:
    """Why the targets were missed in the worst step."""
    match incident.cause:
        case Cause.NO_CARDS:
            return f"no cards for {incident.refused} more replicas"
        case Cause.STARTING:
            starting = incident.replicas - incident.ready
            return f"{starting} of {incident.replicas} replicas were still starting"
        case Cause.TOO_FEW:
            return f"{incident.rate:.2f} requests/s came, {incident.able:.2f} could be served"
        case Cause.BACKLOG:
            return f"{incident.waiting:.0f} requests waited from before"
        case Cause.TOO_FULL:
            return "batches were larger than the targets allow"
