"""Charts of pages: lines over time, stacked areas, and points with their front; pure."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from inferno_operator.pages.svg import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Frame, Points

COLOURS = 9
"""Colours of the style sheet."""

LETTER, LINE, ABOVE, BELOW = 7.2, 15.0, 8.0, 19.0
"""Size of a letter of the name of a point, and how far above or below the point it is [px]."""

DECIMALS = 3
"""Of the numbers that the browser tells of a point."""

RADIUS = 4.0
"""Of a point [px]."""

NAME_PLACES = 8
"""How many lines above and below a point its name may be."""


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

    def hides(self, other: "Box") -> bool:
        """Whether two boxes have a point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def line_chart(
    frame: Frame,
    lines: Sequence[tuple[str, Points]],
    words: str,
    marks: Sequence[Named] = (),
    named: Container[str] = (),
    band: Sequence[tuple[float, float]] = (),
) -> Chart:
    """Return lines, each with its class in the style sheet, and points, some with their names.

    `band` has the corners of an area behind them.
    """
    area = [frame.area(band)] if band else []
    drawn = (frame.line(points, kind) for kind, points in lines)
    return _chart((*area, *drawn, *_dots(frame, marks, named)), frame, words)


def stacked_chart(
    frame: Frame, x: Sequence[float], layers: Sequence[tuple[str, Sequence[float]]], words: str
) -> Chart:
    """Return areas one on another, the first one at the bottom.

    Parameters
    ----------
    frame
        The axes.
    x
        Where the values are.
    layers
        At most `COLOURS` names of areas, with as many values as there are places.
    words
        What it shows.
    """
    bottom, areas, legend = [0.0] * len(x), [], []
    for place, (name, values) in enumerate(layers):
        top = [low + value for low, value in zip(bottom, values, strict=True)]
        colour = f"s{place}"
        edge = [*zip(x, top, strict=True), *reversed([*zip(x, bottom, strict=True)])]
        areas.append(frame.area(edge, colour))
        legend.append(Legend(name, colour))
        bottom = top
    return _chart(areas, frame, words, legend)


def front_chart(frame: Frame, points: Sequence[Named], words: str) -> Chart:
    """Return points with their names, and a line through those that no other one beats.

    A point beats another if it is not further to the right and not lower, and is not the same.
    """
    front = [(point.x, point.y) for point in front_of(points)]
    return _chart((frame.line(front, "bound"), *_dots(frame, points)), frame, words)


def agreement_chart(
    frame: Frame, points: Sequence[Named], named: Container[str], words: str
) -> Chart:
    """Return points, the names of some, and a dashed line where both values are the same."""
    end = min(frame.x_most, frame.y_most)
    line = frame.line([(0.0, 0.0), (end, end)], "bound")
    return _chart((line, *_dots(frame, points, named)), frame, words)


def limit_chart(frame: Frame, points: Sequence[Named], limit: float, words: str) -> Chart:
    """Return points, the names of the best ones, and a dashed line at the most that they may be.

    No other point is both further to the left and lower than one of the best.
    """
    line = frame.line([(0.0, limit), (frame.x_most, limit)], "bound")
    best = front_of([Named(point.name, point.x, -point.y) for point in points])
    return _chart((line, *_dots(frame, points, {point.name for point in best})), frame, words)


def front_of(points: Sequence[Named]) -> list[Named]:
    """Return the points that no other one beats, from left to right."""
    front: list[Named] = []
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def _dots(
    frame: Frame, points: Sequence[Named], named: Container[str] | None = None
) -> Iterator[str]:
    """Yield points with their names, where these hide nothing.

    Without `named` all have names, above them if there is room; otherwise these have, below them.
    Of the others, and where there is no room, the browser tells it.
    """
    places = [frame.place(point.x, point.y) for point in points]
    taken = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places]
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
        anchor = "end" if x > WIDTH / 2 else "start"
        boxes = [_name_box(x, low, point.name, anchor) for low in _lines(y, above=named is None)]
        inside = (b for b in boxes if b.left >= LEFT and b.right <= WIDTH)
        box = next((b for b in inside if not any(map(b.hides, taken))), None)
        if box is None:
            continue
        taken.append(box)
        yield (
            f'<text class="label" x="{x:.1f}" y="{box.bottom:.1f}" text-anchor="{anchor}">'
            f"{escape(point.name)}</text>"
        )


def _lines(y: float, *, above: bool) -> list[float]:
    """Where the name of a point may stand inside the axes, the best place first."""
    up = [y - ABOVE - LINE * step for step in range(NAME_PLACES)]
    down = [y + BELOW + LINE * step for step in range(NAME_PLACES)]
    tried = [low for pair in zip(up, down, strict=True) for low in (pair if above else pair[::-1])]
    inside = [low for low in tried if TOP + LINE <= low <= HEIGHT - BOTTOM]
    return inside or tried


def _name_box(x: float, low: float, name: str, anchor: str) -> Box:
    left = x - LETTER * len(name) if anchor == "end" else x
    return Box(left, low - LINE + 1, left + LETTER * len(name), low)


def _chart(parts: Iterable[str], frame: Frame, words: str, legend: Sequence[Legend] = ()) -> Chart:
    drawn = "\n".join((*parts, *frame.axes()))
    svg = (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(words)}">\n'
        f"{drawn}\n</svg>"
    )
    return Chart(Markup(svg), words, legend)  # noqa: S704 - all texts in it are escaped
