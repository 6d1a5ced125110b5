"""Pictures as SVG documents: how the exact solver improved a plan, and a calibration; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import dropwhile
from operator import attrgetter

import numpy as np

from inferno_operator.pages import charts
from inferno_operator.pages.charts import Frame, Steps, to_stairs
from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.choice import expected_ms, line_factors
from inferno_optimizer.calibration.confidence import Z
from inferno_optimizer.calibration.verdict import LineFit
from inferno_optimizer.calibration.windows import Rejection, Requirements, Window, judged
from inferno_optimizer.solution import Certificate, CurvePoint

SEARCH_PHASE = "assignment"  # the phase of a certificate in which the solver runs
LEAST_RANGE = 1e-3  # range of an axis on which nothing changes, as a share of the value
LEAST_TIME_S = 1e-3  # end of the axis of the time at least [s]
MARGIN = 0.05  # room above and below the values, as a share of their range
PIECES = 40  # pieces of which the edge of the band of a fit is made
SOLVER_STYLE = f"""\
{charts.STYLE}
.bound {{ stroke: #c33; fill: none; stroke-dasharray: 4 3 }}"""

FIT_STYLE = f"""\
{charts.STYLE} .used {{ fill: #2266aa }}
.rejected {{ stroke: #c33; fill: none }}"""


def draw_solver_curve(certificate: Certificate) -> str:
    """Return the curve of a certificate: a panel for each priority, and one for the value.

    Lines are what the best plan serves and its value; broken lines are the proven bounds. The curve
    has at least one point.
    """
    curve = certificate.curve
    end = max(curve[-1].seconds, dict(certificate.phases).get(SEARCH_PHASE, 0.0))
    panels = []
    for level in certificate.levels:
        loads = [(point.seconds, point.served[level.priority]) for point in curve]
        served = list(dropwhile(lambda step: step[1] == 0, loads)) or loads
        title = f"Served load of priority {level.priority}"
        bounds = _list_bounds(curve, level.priority)
        panels.append(_draw_steps(title, "requests/min", served, bounds, end))
    values = [(point.seconds, point.value) for point in curve if point.priority is None]
    panels.append(_draw_steps("Value", "cents/hour", values, _list_bounds(curve, None), end))
    return charts.arrange_panels(panels, 2, SOLVER_STYLE)


def _list_bounds(curve: Sequence[CurvePoint], priority: int | None) -> Steps:
    return [
        (point.seconds, point.bound)
        for point in curve
        if point.priority == priority and point.bound is not None
    ]


def _draw_steps(title: str, unit: str, plan: Steps, bounds: Steps, end: float) -> str:
    values = [value for _, value in (*plan, *bounds)]
    low, high = min(values), max(values)
    margin = MARGIN * max(high - low, LEAST_RANGE * abs(high), 1.0)
    frame = Frame(title, "time [s]", unit, max(end, LEAST_TIME_S), high + margin, low - margin)
    lines = (frame.line(to_stairs(bounds, end), "bound"), frame.line(to_stairs(plan, end)))
    return "\n".join((*frame.axes(), *lines))


@dataclass(frozen=True, slots=True)
class Point:
    """A measurement; `reason` says why it is not used, "" if it is."""

    x: float
    y: float
    reason: str = ""


def draw_calibration(
    windows: Sequence[Window], result: Calibration, requirements: Requirements
) -> str:
    """Return measurements, the lines that are fitted to them, and their upper confidence.

    Decode steps are without waits for prefills if these can be told apart; prefills are without
    what clients see besides. `requirements` say which measurements the calibration did not use.
    """
    runs, facts = judged(windows, requirements), result.facts
    panels = (
        _draw_fit("Decode step", "batch [requests]", facts.decode, _place_runs(runs, result, 0)),
        _draw_fit("Prefill", "input tokens * batch", facts.prefill, _place_runs(runs, result, 1)),
    )
    return charts.arrange_panels(panels, len(panels), FIT_STYLE)


def _place_runs(
    runs: Sequence[tuple[Window, Rejection | None]], result: Calibration, line: int
) -> list[Point]:
    facts = result.facts
    names = ("batch", "input_tokens", "output_tokens", "itl_ms", "prefill_ms")
    columns = np.array([attrgetter(*names)(window) for window, _ in runs]).reshape(-1, 5)
    batch, inputs, outputs = columns[:, :3].T
    factors = line_factors(facts, batch, inputs, np.maximum(outputs, 2.0))[line]
    fitted = expected_ms(facts, batch, inputs, np.maximum(outputs, 2.0))[line]
    own = factors[:, 2 * line : 2 * line + 2]
    x = own[:, 1] / own[:, 0]
    fitted_line = (facts.decode, facts.prefill)[line]
    y = fitted_line.intercept + fitted_line.slope * x + (columns[:, 3 + line] - fitted) / own[:, 0]
    reasons = [reason or "" for _, reason in runs]
    return [Point(*each) for each in zip(x.tolist(), y.tolist(), reasons, strict=True)]


def _draw_fit(title: str, x_label: str, line: LineFit, points: Sequence[Point]) -> str:
    """Draw a line with its band, from 0 on, and the measurements that it is fitted to."""
    x_most = max((point.x for point in points), default=1.0) * 1.05
    highest = max((point.y for point in points), default=1.0)
    # Outliers beyond four times the line are drawn at the edge: they would flatten all others.
    fitted_most = line.at(x_most) + Z * line.error(x_most)
    y_most = min(max(highest, fitted_most), 4 * fitted_most)
    frame = Frame(title, x_label, "time [ms]", x_most, y_most * 1.05 or 1.0)
    positions = [x_most * number / PIECES for number in range(PIECES + 1)]
    upper = [(x, line.at(x) + Z * line.error(x)) for x in positions]
    lower = [(x, line.at(x) - Z * line.error(x)) for x in reversed(positions)]
    fit = frame.line([(x, line.at(x)) for x in (0.0, x_most)])
    marks = []
    for point in points:
        x, y = frame.place(point.x, point.y)
        kind = "rejected" if point.reason else "used"
        title = escape(f"{point.x:.4g}, {point.y:.4g} ms {point.reason}".rstrip())
        circle = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        marks.append(f"{circle}<title>{title}</title></circle>")
    return "\n".join((*frame.axes(), frame.area([*upper, *lower]), fit, *marks))
