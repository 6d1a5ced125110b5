"""Panels of line charts as SVG: frames with axes, lines, bands; pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 380.0, 260.0
LEFT, TOP, RIGHT, BOTTOM = 56.0, 34.0, 16.0, 44.0
"""Size of a panel, and its margins [px]."""

TICKS = 5
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

STYLE = """\
text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold; font-size: 12px }
.axis { stroke: #999; fill: none } .band { fill: #4a90d9; opacity: .2 }
.line { stroke: #2266aa; fill: none; stroke-width: 1.5 }"""

Points = Iterable[tuple[float, float]]

Steps = Sequence[tuple[float, float]]
"""Times, and values from then on."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of a panel: titles, and the range of values; x begins at 0.

    Values of y are named at whole numbers only if `whole`.
    """

    title: str
    x_label: str
    y_label: str
    x_most: float
    y_most: float
    y_least: float = 0.0
    whole: bool = False

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn [px]; one above or below is drawn at the edge."""
        across = WIDTH - LEFT - RIGHT
        down = HEIGHT - TOP - BOTTOM
        share = min(max((y - self.y_least) / (self.y_most - self.y_least), 0.0), 1.0)
        return LEFT + across * x / self.x_most, TOP + down * (1.0 - share)

    def line(self, points: Points, kind: str = "line") -> str:
        """Return a line through points; `kind` is its class in the style."""
        return f'<polyline class="{kind}" points="{self._path(points)}"/>'

    def area(self, points: Points, kind: str = "band") -> str:
        """Return the area inside points."""
        return f'<polygon class="{kind}" points="{self._path(points)}"/>'

    def axes(self) -> Iterator[str]:
        """Yield the axes with their values and titles."""
        yield self.line(
            [(0.0, self.y_most), (0.0, self.y_least), (self.x_most, self.y_least)], "axis"
        )
        yield f'<text class="title" x="4" y="11">{escape(self.title)}</text>'
        yield _text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, self.x_label, "middle")
        yield _text(4, TOP - 9, self.y_label, "start")
        for value in ticks(0.0, self.x_most):
            x, y = self.place(value, self.y_least)
            yield _text(x, y + 15, f"{value:,.9g}", "middle")
        for value in ticks(self.y_least, self.y_most, whole=self.whole):
            x, y = self.place(0.0, value)
            yield _text(x - 6, y + 4, f"{value:,.9g}", "end")

    def _path(self, points: Points) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in points))


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def ticks(least: float, most: float, *, whole: bool = False) -> list[float]:
    """Round or whole values between the ends of an axis, about `TICKS` of them."""
    rough = (most - least) / TICKS
    power = 10.0 ** floor(log10(rough))
    steps = (factor * power for factor in STEPS if factor * power >= rough)
    step = max(ceil(next(steps)), 1) if whole else next(steps)
    return [step * number for number in range(ceil(least / step), int(most / step) + 1)]


def stairs(steps: Steps, end: float) -> Steps:
    """Corners of a line that keeps each value until the next one, the last until the end."""
    times = [*(start for start, _ in steps[1:]), end]
    return [
        corner
        for (start, value), until in zip(steps, times, strict=False)
        for corner in ((start, value), (until, value))
    ]


def document(panels: Sequence[str], columns: int, style: str = STYLE) -> str:
    """Return panels in rows of so many columns as an SVG document."""
    width, height = columns * WIDTH, ceil(len(panels) / columns) * HEIGHT
    placed = "\n".join(_moved(panel, *divmod(n, columns)) for n, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}">\n<style>{style}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{placed}\n</svg>\n'
    )


def _moved(panel: str, row: int, column: int) -> str:
    return f'<g transform="translate({column * WIDTH:g} {row * HEIGHT:g})">\n{panel}\n</g>'
