"""Draws the curve of a certificate as SVG: how the exact solver improved the plan; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from inferno_operator.pages import svg
from inferno_operator.pages.svg import Frame, Steps, stairs
from inferno_optimizer.solution import Certificate, CurvePoint

SEARCH = "assignment"
"""The phase of a certificate in which the solver runs."""

COLUMNS = 2
"""Panels side by side."""

MARGIN = 0.05
"""Room above and below the values, as a share of their range."""

LEAST_RANGE = 1e-3
"""Range of an axis on which nothing changes, as a share of the value."""

SHORTEST = 1e-3
"""End of the axis of the time at least [s]."""

STYLE = f"""\
{svg.STYLE}
.bound {{ stroke: #c33; fill: none; stroke-dasharray: 4 3 }}"""


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """What the solver improves in one of its stages: of the best plan, and its bound."""

    title: str
    unit: str
    plan: Steps
    bound: Steps


def draw(certificate: Certificate) -> str:
    """Return the picture of a curve as an SVG document: a panel for each priority, and the value.

    Lines are what the best plan serves and its value; broken lines are the proven bounds.

    Parameters
    ----------
    certificate
        Of a plan; its curve has at least one point.
    """
    curve = certificate.curve
    panels = [_load(curve, level.priority) for level in certificate.levels]
    panels.append(_value(curve))
    end = max(curve[-1].seconds, dict(certificate.phases).get(SEARCH, 0.0))
    drawn = [_drawn(panel, end) for panel in panels]
    return svg.document(drawn, COLUMNS, STYLE)


def _load(curve: Sequence[CurvePoint], priority: int) -> CurvePanel:
    """The served load of a priority, from when the solver reached it."""
    loads = [(point.seconds, point.served[priority]) for point in curve]
    served = list(dropwhile(lambda step: step[1] == 0, loads)) or loads
    title = f"Served load of priority {priority}"
    return CurvePanel(title, "requests/min", served, _bounds(curve, priority))


def _value(curve: Sequence[CurvePoint]) -> CurvePanel:
    """The value in the last stage, in which it is minimized."""
    values = [(point.seconds, point.value) for point in curve if point.priority is None]
    return CurvePanel("Value", "cents/hour", values, _bounds(curve, None))


def _bounds(curve: Sequence[CurvePoint], priority: int | None) -> Steps:
    return [
        (point.seconds, point.bound)
        for point in curve
        if point.priority == priority and point.bound is not None
    ]


def _drawn(panel: CurvePanel, end: float) -> str:
    values = [value for _, value in (*panel.plan, *panel.bound)]
    low, high = min(values), max(values)
    margin = MARGIN * max(high - low, LEAST_RANGE * abs(high), 1.0)
    frame = Frame(
        panel.title, "time [s]", panel.unit, max(end, SHORTEST), high + margin, low - margin
    )
    plan, bound = stairs(panel.plan, end), stairs(panel.bound, end)
    return "\n".join((*frame.axes(), frame.line(bound, "bound"), frame.line(plan)))
