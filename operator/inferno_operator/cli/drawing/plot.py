"""Draws a calibration as SVG: measurements, fitted lines with their upper confidence; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from operator import attrgetter

import numpy as np

from inferno_operator.pages import svg
from inferno_operator.pages.svg import Frame
from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.choice import expected_ms, line_factors
from inferno_optimizer.calibration.confidence import Z
from inferno_optimizer.calibration.verdict import LineFit
from inferno_optimizer.calibration.windows import Rejection, Requirements, Window, judged

CURVE = 40
"""Pieces of which the edge of the band is made."""

STYLE = f"""\
{svg.STYLE} .used {{ fill: #2266aa }}
.rejected {{ stroke: #c33; fill: none }}"""


@dataclass(frozen=True, slots=True)
class Point:
    """A measurement; `reason` says why it is not used, "" if it is."""

    x: float
    y: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FitPanel:
    """A line and the measurements that it is fitted to."""

    title: str
    x_label: str
    y_label: str
    line: LineFit
    points: Sequence[Point]

    @property
    def frame(self) -> Frame:
        """The axes."""
        return Frame(self.title, self.x_label, self.y_label, self.x_most, self.y_most)

    @property
    def x_most(self) -> float:
        """Right end of the axis."""
        return max((point.x for point in self.points), default=1.0) * 1.05

    @property
    def y_most(self) -> float:
        """Upper end of the axis; outliers beyond four times the line are drawn at its edge."""
        line = self.line.at(self.x_most) + Z * self.line.error(self.x_most)
        highest = max((point.y for point in self.points), default=1.0)
        return min(max(highest, line), 4 * line) * 1.05 or 1.0


def plot(windows: Sequence[Window], result: Calibration, requirements: Requirements) -> str:
    """The picture of a calibration as an SVG document.

    Parameters
    ----------
    windows
        The measurements that were calibrated with.
    result
        Their calibration.
    requirements
        Those of the calibration, which say which measurements were not used.
    """
    judgements = judged(windows, requirements)
    panels = (_decode(judgements, result), _prefill(judgements, result))
    return svg.document([_panel(panel) for panel in panels], len(panels), STYLE)


Judgements = Sequence[tuple[Window, Rejection | None]]


def _decode(judgements: Judgements, result: Calibration) -> FitPanel:
    """Decode steps against the batch, without waits for prefills if these can be told apart."""
    points = _points(judgements, result, 0)
    return FitPanel("Decode step", "batch [requests]", "time [ms]", result.facts.decode, points)


def _prefill(judgements: Judgements, result: Calibration) -> FitPanel:
    """Prefills against input tokens times batch, without what clients see besides."""
    points = _points(judgements, result, 1)
    label = "input tokens * batch"
    return FitPanel("Prefill", label, "time [ms]", result.facts.prefill, points)


def _points(judgements: Judgements, result: Calibration, line: int) -> list[Point]:
    """The runs as points of the first or of the second line."""
    facts = result.facts
    names = ("batch", "input_tokens", "output_tokens", "itl_ms", "prefill_ms")
    columns = np.array([attrgetter(*names)(window) for window, _ in judgements]).reshape(-1, 5)
    batch, inputs, outputs = columns[:, :3].T
    factors = line_factors(facts, batch, inputs, np.maximum(outputs, 2.0))[line]
    fitted = expected_ms(facts, batch, inputs, np.maximum(outputs, 2.0))[line]
    own = factors[:, 2 * line : 2 * line + 2]
    x = own[:, 1] / own[:, 0]
    fitted_line = (facts.decode, facts.prefill)[line]
    y = fitted_line.intercept + fitted_line.slope * x + (columns[:, 3 + line] - fitted) / own[:, 0]
    reasons = [reason or "" for _, reason in judgements]
    return [Point(*each) for each in zip(x.tolist(), y.tolist(), reasons, strict=True)]


def _panel(panel: FitPanel) -> str:
    frame = panel.frame
    parts = (*frame.axes(), _band(panel), _fitted(panel), *(_mark(frame, p) for p in panel.points))
    return "\n".join(parts)


def _band(panel: FitPanel) -> str:
    """The upper and lower confidence, from 0 to the end of the axis."""
    line = panel.line
    positions = [panel.x_most * number / CURVE for number in range(CURVE + 1)]
    upper = [(x, line.at(x) + Z * line.error(x)) for x in positions]
    lower = [(x, line.at(x) - Z * line.error(x)) for x in reversed(positions)]
    return panel.frame.area([*upper, *lower])


def _fitted(panel: FitPanel) -> str:
    return panel.frame.line([(x, panel.line.at(x)) for x in (0.0, panel.x_most)])


def _mark(frame: Frame, point: Point) -> str:
    """A measurement; one that is not used is a ring whose title says why."""
    x, y = frame.place(point.x, point.y)
    kind = "rejected" if point.reason else "used"
    title = escape(f"{point.x:.4g}, {point.y:.4g} ms {point.reason}".rstrip())
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{title}</title></circle>'
