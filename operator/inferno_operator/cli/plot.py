"""Draws a calibration as SVG: measurements, fitted lines with their upper confidence; pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from inferno_optimizer.calibration.calibrate import Calibration
from inferno_optimizer.calibration.confidence import Z
from inferno_optimizer.calibration.fit import interference_ms
from inferno_optimizer.calibration.verdict import LineFit
from inferno_optimizer.calibration.windows import Rejection, Requirements, Window, judged

WIDTH, HEIGHT = 380.0, 260.0
LEFT, TOP, RIGHT, BOTTOM = 56.0, 34.0, 16.0, 44.0
"""Size of a panel, and its margins [px]."""

TICKS = 5
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
CURVE = 40
"""Pieces of which the edge of the band is made."""

STYLE = """\
text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold; font-size: 12px }
.axis { stroke: #999; fill: none } .band { fill: #4a90d9; opacity: .2 }
.line { stroke: #2266aa; fill: none; stroke-width: 1.5 } .used { fill: #2266aa }
.rejected { stroke: #c33; fill: none }"""


@dataclass(frozen=True, slots=True)
class Point:
    """A measurement; `reason` says why it is not used, "" if it is."""

    x: float
    y: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A line and the measurements that it is fitted to."""

    title: str
    x_label: str
    y_label: str
    line: LineFit
    points: Sequence[Point]

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
    drawn = "\n".join(_panel(panel, number) for number, panel in enumerate(panels))
    width = len(panels) * WIDTH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {HEIGHT:g}"'
        f' width="{width:g}" height="{HEIGHT:g}">\n<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{drawn}\n</svg>\n'
    )


Judgements = Sequence[tuple[Window, Rejection | None]]


def _decode(judgements: Judgements, result: Calibration) -> Panel:
    """Decode steps against the batch, without waits for prefills if these can be told apart."""
    facts, prefill = result.facts, result.facts.prefill

    def alone(window: Window) -> float:
        if not facts.waits_apart:
            return window.itl_ms
        others = prefill.at(window.input_tokens * (window.batch + 1.0))
        return window.itl_ms - interference_ms(window.batch, others, window.output_tokens)

    points = [Point(w.batch, alone(w), reason or "") for w, reason in judgements]
    return Panel("Decode step", "batch [requests]", "time [ms]", facts.decode, points)


def _prefill(judgements: Judgements, result: Calibration) -> Panel:
    """Prefills against input tokens times batch."""
    points = [
        Point(w.batch * w.input_tokens, w.prefill_ms, reason or "") for w, reason in judgements
    ]
    label = "input tokens * batch"
    return Panel("Prefill", label, "time [ms]", result.facts.prefill, points)


def _panel(panel: Panel, number: int) -> str:
    parts = (*_axes(panel), _band(panel), _fitted(panel), *map(_mark(panel), panel.points))
    inner = "\n".join(parts)
    return f'<g transform="translate({number * WIDTH:g} 0)">\n{inner}\n</g>'


def _place(panel: Panel, x: float, y: float) -> tuple[float, float]:
    """Where a point is drawn [px]."""
    across = WIDTH - LEFT - RIGHT
    down = HEIGHT - TOP - BOTTOM
    share = min(max(y / panel.y_most, 0.0), 1.0)
    return LEFT + across * x / panel.x_most, TOP + down * (1.0 - share)


def _path(panel: Panel, points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(panel, *point) for point in points))


def _axes(panel: Panel) -> Iterator[str]:
    corners = [(0.0, panel.y_most), (0.0, 0.0), (panel.x_most, 0.0)]
    yield f'<polyline class="axis" points="{_path(panel, corners)}"/>'
    yield f'<text class="title" x="{LEFT:g}" y="18">{escape(panel.title)}</text>'
    yield _text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, panel.x_label, "middle")
    yield _text(4, TOP - 4, panel.y_label, "start")
    for value in ticks(panel.x_most):
        x, y = _place(panel, value, 0.0)
        yield _text(x, y + 15, f"{value:g}", "middle")
    for value in ticks(panel.y_most):
        x, y = _place(panel, 0.0, value)
        yield _text(x - 6, y + 4, f"{value:g}", "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def ticks(most: float) -> list[float]:
    """Round values from 0 to the end of an axis, about `TICKS` of them."""
    rough = most / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in STEPS if factor * power >= rough)
    return [step * number for number in range(int(most / step) + 1)]


def _band(panel: Panel) -> str:
    """The upper and lower confidence, from 0 to the end of the axis."""
    line = panel.line
    positions = [panel.x_most * number / CURVE for number in range(CURVE + 1)]
    upper = [(x, line.at(x) + Z * line.error(x)) for x in positions]
    lower = [(x, line.at(x) - Z * line.error(x)) for x in reversed(positions)]
    return f'<polygon class="band" points="{_path(panel, [*upper, *lower])}"/>'


def _fitted(panel: Panel) -> str:
    ends = [(x, panel.line.at(x)) for x in (0.0, panel.x_most)]
    return f'<polyline class="line" points="{_path(panel, ends)}"/>'


def _mark(panel: Panel) -> Callable[[Point], str]:
    """Draws a point; one that is not used is a ring whose title says why."""

    def drawn(point: Point) -> str:
        x, y = _place(panel, point.x, point.y)
        kind = "rejected" if point.reason else "used"
        title = escape(f"{point.x:.4g}, {point.y:.4g} ms {point.reason}".rstrip())
        circle = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        return f"{circle}<title>{title}</title></circle>"

    return drawn
