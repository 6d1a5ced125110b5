"""Charts as SVG: axes, lines, bands, stacked areas, and points with their front; pure."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Self

from markupsafe import Markup

WIDTH, HEIGHT = 380.0, 260.0
LEFT, TOP, RIGHT, BOTTOM = 56.0, 34.0, 16.0, 44.0  # size of a panel, and its margins [px]
TICKS = 5
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

STYLE = """\
text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold; font-size: 12px }
.axis { stroke: #999; fill: none } .band { fill: #4a90d9; opacity: .2 }
.line { stroke: #2266aa; fill: none; stroke-width: 1.5 }"""

Points = Iterable[tuple[float, float]]

Steps = Sequence[tuple[float, float]]  # Times, and values from then on


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
        yield _draw_text(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, self.x_label, "middle")
        yield _draw_text(4, TOP - 9, self.y_label, "start")
        for value in list_ticks(0.0, self.x_most):
            x, y = self.place(value, self.y_least)
            yield _draw_text(x, y + 15, f"{value:,.9g}", "middle")
        for value in list_ticks(self.y_least, self.y_most, whole=self.whole):
            x, y = self.place(0.0, value)
            yield _draw_text(x - 6, y + 4, f"{value:,.9g}", "end")

    def _path(self, points: Points) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in points))


def _draw_text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def list_ticks(least: float, most: float, *, whole: bool = False) -> list[float]:
    """Round or whole values between the ends of an axis, about `TICKS` of them."""
    rough = (most - least) / TICKS
    power = 10.0 ** floor(log10(rough))
    steps = (factor * power for factor in STEPS if factor * power >= rough)
    step = max(ceil(next(steps)), 1) if whole else next(steps)
    return [step * number for number in range(ceil(least / step), int(most / step) + 1)]


def to_stairs(steps: Steps, end: float) -> Steps:
    """Corners of a line that keeps each value until the next one, the last until the end."""
    times = [*(start for start, _ in steps[1:]), end]
    return [
        corner
        for (start, value), until in zip(steps, times, strict=False)
        for corner in ((start, value), (until, value))
    ]


def arrange_panels(
    panels: Sequence[str], columns: int, style: str = STYLE, zoom: float = 1.0
) -> str:
    """Return panels in rows of so many columns as an SVG document, `zoom` times their size."""
    width, height = columns * WIDTH, ceil(len(panels) / columns) * HEIGHT
    placed = "\n".join(
        f'<g transform="translate({n % columns * WIDTH:g} {n // columns * HEIGHT:g})">'
        f"\n{panel}\n</g>"
        for n, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width * zoom:g}" height="{height * zoom:g}">\n<style>{style}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{placed}\n</svg>\n'
    )


COLOURS = 9  # colours of the style sheet

# Size of a letter of the name of a point, and how far above or below the point it is [px].
LETTER, LINE_HEIGHT, ABOVE, BELOW = 7.2, 15.0, 8.0, 19.0

DECIMALS = 3  # of the numbers that the browser tells of a point
RADIUS = 4.0  # of a point [px]
PIECES = 20  # of a part of a line, whose ends names do not hide
NAME_PLACES = 8  # how many lines above and below a point its name may be, where all have one
NEAR_PLACES = 2  # the same where only some have: a name far from its point would be another one's


@dataclass(frozen=True, slots=True)
class Legend:
    """The name of a colour of a chart."""

    name: str
    colour: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture; `words` say what it shows, for those who do not see it."""

    svg: Markup
    words: str
    legend: Sequence[Legend] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """A point with its name."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Box:
    """A place in a picture that something takes [px]."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Whether two boxes have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def draw_lines(
    frame: Frame,
    lines: Sequence[tuple[str, Points]],
    words: str,
    marks: Sequence[Named] = (),
    named: Container[str] | None = (),
    band: Sequence[tuple[float, float]] = (),
) -> Chart:
    """Return lines, each with its class in the style sheet, and points, some with their names.

    `named`: as in `draw_dots`; `band`: the corners of an area behind the lines.
    """
    area = [frame.area(band)] if band else []
    placed = [(kind, [*points]) for kind, points in lines]
    drawn = (frame.line(points, kind) for kind, points in placed)
    passed = [
        (x + step / PIECES * (to_x - x), y + step / PIECES * (to_y - y))
        for _, points in placed
        for (x, y), (to_x, to_y) in pairwise(points)
        for step in range(PIECES + 1)
    ]
    return _build_chart((*area, *drawn, *draw_dots(frame, marks, named, passed)), frame, words)


def draw_stack(
    frame: Frame, x: Sequence[float], layers: Sequence[tuple[str, Sequence[float]]], words: str
) -> Chart:
    """Return areas one on another, the first one at the bottom.

    `frame`: the axes; `x`: where the values are; `layers`: at most `COLOURS` names of areas,
    with as many values as there are places; `words`: what it shows.
    """
    bottom, areas, legend = [0.0] * len(x), [], []
    for place, (name, values) in enumerate(layers):
        top = [low + value for low, value in zip(bottom, values, strict=True)]
        colour = f"s{place}"
        edge = [*zip(x, top, strict=True), *reversed([*zip(x, bottom, strict=True)])]
        areas.append(frame.area(edge, colour))
        legend.append(Legend(name, colour))
        bottom = top
    return _build_chart(areas, frame, words, legend)


def draw_front(frame: Frame, points: Sequence[Named], words: str) -> Chart:
    """Return points with their names, and a line through those that no other one beats.

    A point beats another if it is not further to the right and not lower, and is not the same.
    """
    front = [(point.x, point.y) for point in find_front(points)]
    return draw_lines(frame, [("bound", front)], words, points, None)


def find_front(points: Sequence[Named]) -> list[Named]:
    """Return the points that no other one beats, from left to right."""
    front: list[Named] = []
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def find_low_front(points: Sequence[Named]) -> list[Named]:
    """Return the points of which no other one is as far to the left and as low."""
    front = find_front([Named(point.name, point.x, -point.y) for point in points])
    return [Named(point.name, point.x, -point.y) for point in front]


def draw_dots(
    frame: Frame,
    points: Sequence[Named],
    named: Container[str] | None = None,
    passed: Points = (),
) -> Iterator[str]:
    """Yield points with their names, where these hide nothing.

    Without `named` all have names, above them if there is room; otherwise these have, below them.
    Of the others, and where there is no room, the browser tells it. `passed` are points that
    lines go through, which names hide only where there is no other place.
    """

    def enclose(x: float, y: float, radius: float = RADIUS) -> Box:
        return Box(x - radius, y - radius, x + radius, y + radius)

    places = [frame.place(point.x, point.y) for point in points]
    taken = [enclose(*place) for place in places]
    lines = [enclose(*frame.place(*point), radius=1.0) for point in passed]
    for point, (x, y) in sorted(
        zip(points, places, strict=True), key=lambda item: (-item[0].y, item[0].x)
    ):
        title = f"{point.name}: {round(point.x, DECIMALS):,.9g}; {round(point.y, DECIMALS):,.9g}"
        yield (
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:g}">'
            f"<title>{escape(title)}</title></circle>"
        )
        if named is not None and point.name not in named:
            continue
        sides = ("start", "end") if named is None and x <= WIDTH / 2 else ("end", "start")
        placed = (
            (_place_name(x, low, point.name, side), side)
            for low in _list_name_lines(y, above=named is None)
            for side in sides
        )
        free = [
            (box, side)
            for box, side in placed
            if box.left >= LEFT and box.right <= WIDTH and not any(map(box.overlaps, taken))
        ]
        if not free:
            continue
        box, anchor = min(free, key=lambda place: any(map(place[0].overlaps, lines)))
        taken.append(box)
        yield (
            f'<text class="label" x="{x:.1f}" y="{box.bottom:.1f}" text-anchor="{anchor}">'
            f"{escape(point.name)}</text>"
        )


def _list_name_lines(y: float, *, above: bool) -> list[float]:
    """Where the name of a point may stand inside the axes, the best place first."""
    steps = range(NAME_PLACES if above else NEAR_PLACES)
    up = [y - ABOVE - LINE_HEIGHT * step for step in steps]
    down = [y + BELOW + LINE_HEIGHT * step for step in steps]
    tried = [low for pair in zip(up, down, strict=True) for low in (pair if above else pair[::-1])]
    inside = [low for low in tried if TOP + LINE_HEIGHT <= low <= HEIGHT - BOTTOM]
    return inside or tried


def _place_name(x: float, low: float, name: str, anchor: str) -> Box:
    left = x - LETTER * len(name) if anchor == "end" else x
    return Box(left, low - LINE_HEIGHT + 1, left + LETTER * len(name), low)


def _build_chart(
    parts: Iterable[str], frame: Frame, words: str, legend: Sequence[Legend] = ()
) -> Chart:
    drawn = "\n".join((*parts, *frame.axes()))
    svg = (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(words)}">\n'
        f"{drawn}\n</svg>"
    )
    return Chart(Markup(svg), words, legend)  # noqa: S704 - all texts in it are escaped


# Units of an axis: the shortest axis that has it [s], its length [s], and its name.
UNITS = ((3 * 86400.0, 86400.0, "days"), (3 * 3600.0, 3600.0, "hours"), (0.0, 60.0, "minutes"))

SHORTEST_S = 60.0  # shortest axis [s]


@dataclass(frozen=True, slots=True)
class Timeline:
    """An axis from `start` that is `length_s` long [s]."""

    start: datetime
    length_s: float

    @classmethod
    def of(cls, moments: Iterable[datetime], now: datetime) -> Self:
        """The axis from the first of some moments until now."""
        start = min([*moments, now])
        return cls(start, max((now - start).total_seconds(), SHORTEST_S))

    @property
    def _unit(self) -> tuple[float, str]:
        return next((size, name) for least, size, name in UNITS if self.length_s >= least)

    @property
    def label(self) -> str:
        """The title of the axis."""
        return f"{self._unit[1]} since {self.start:%Y-%m-%d %H:%M} UTC"

    @property
    def end(self) -> float:
        """Where the axis ends, in its unit."""
        return self.length_s / self._unit[0]

    def at(self, moment: datetime) -> float:
        """Where a moment is, in the unit of the axis."""
        return (moment - self.start).total_seconds() / self._unit[0]
