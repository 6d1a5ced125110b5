"""What one model needs for one load on each card, as text and as a picture."""

from collections.abc import Iterator, Sequence

from inferno_operator.cli.options import Money
from inferno_operator.cli.sizing import Sized, SizeResult
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.pages import charts
from inferno_operator.pages.charts import Frame, Named
from inferno_optimizer.errors import InputError

MARGIN = 1.1
"""End of an axis, as a multiple of the largest value."""

DEAREST = 5.0
"""Cost of what is drawn at most, as a multiple of the least."""

STYLE = f"""\
{charts.STYLE} .dot {{ fill: #2266aa }} .label {{ font-size: 10px }}
.bound {{ stroke: #c33; fill: none; stroke-dasharray: 4 3 }} svg {{ max-width: 100%; height: auto }}
@media (prefers-color-scheme: dark) {{
svg {{ background: #10151c }} rect {{ fill: #10151c }} text {{ fill: #d5dbe3 }}
.axis {{ stroke: #6b7684 }} .dot {{ fill: #6cb0ff }} .bound {{ stroke: #ff8a80 }} }}"""

ZOOM = 2.0
"""Size of the picture, as a multiple of a panel; a narrow window makes it smaller."""

UNPRICED = "-"


def describe_sizing(sizing: SizeResult, money: Money, *, whole: bool = False) -> Iterator[Part]:
    """Yield the load, what holds its targets, the best first, and why the others do not.

    Unless the `whole` is asked for, each card is there once, with its best number of cards.
    """
    load = sizing.request.load
    yield (
        f"{sizing.request.name}: {load.rate:g} requests/s of {load.input_tokens} input and"
        f" {load.output_tokens} output tokens, mean TTFT at most {load.ttft_ms:g} ms, mean ITL at"
        f" most {load.itl_ms:g} ms"
    )
    yield ""
    shown = sizing.sized if whole else sizing.best
    held = [each for each in shown if not each.reason]
    yield _tabulate(held, money) if held else "no card holds the targets"
    if out := [(each.group.name, each.reason) for each in shown if each.reason]:
        yield ""
        yield TextTable(("ACCELERATOR", "OUT BECAUSE"), out)
    yield ""
    if (apart := sizing.apart) is not None:
        yield (
            f"cheaper with prefill and decode apart: {apart.placement}, {money.amount(apart.cost)}"
            f" {money.rate}, TTFT {apart.ttft_ms:.0f} ms, ITL {apart.itl_ms:.1f} ms"
        )
    if more := len(sizing.sized) - len(shown):
        yield f"{more} other numbers of these cards cost as much or more, or are out: --all"
    if unpriced := next((each.group.card.name for each in held if each.cost is None), None):
        yield f"{UNPRICED}: no price is known; --prices FILE, with lines such as {unpriced}: 2.50"
    yield from sizing.warnings


def tabulate_sizing(sizing: SizeResult, money: Money) -> TextTable:
    """Return all that holds the targets, the best first."""
    return _tabulate([each for each in sizing.sized if not each.reason], money)


def _tabulate(held: Sequence[Sized], money: Money) -> TextTable:
    headings = (
        "ACCELERATOR",
        ">REPLICAS",
        ">CARDS",
        ">BATCH",
        ">TTFT MS",
        ">ITL MS",
        f">{money.unit}/HOUR",
        f">{money.unit}/M OUTPUT TOKENS",
        ">+-%",
    )
    return TextTable(headings, list(map(_row, held)), ("+-%", "BATCH", "CARDS"))


def _row(sized: Sized) -> tuple[str, ...]:
    option = sized.option
    if option is None:
        raise ValueError(f"{sized.group.name} holds the targets without an option")
    return (
        sized.group.name,
        str(option.replicas),
        str(option.cards),
        str(option.max_batch_size),
        f"{option.ttft_ms:.0f}",
        f"{option.itl_ms:.1f}",
        UNPRICED if sized.cost is None else f"{sized.cost:.2f}",
        UNPRICED if sized.cost_per_million is None else f"{sized.cost_per_million:.2f}",
        "measured" if option.origin == "published" else f"{option.error_percent:g}",
    )


def draw_sizing(sizing: SizeResult, money: Money) -> str:
    """Return cost against ITL as an SVG document; a broken line joins what nothing else beats.

    What costs more than `DEAREST` times the least is left out.

    Raises
    ------
    InputError
        There is nothing to draw.
    """
    points = [
        Named(each.group.name, each.option.itl_ms, each.cost)
        for each in sizing.sized
        if each.option is not None and each.cost is not None and not each.reason
    ]
    if not points:
        raise InputError("--plot: nothing to draw: no card with a known price holds the targets")
    least = min(point.y for point in points)
    points = [point for point in points if point.y <= DEAREST * least]
    frame = Frame(
        f"{sizing.request.name}: cost and ITL",
        "ITL [ms]; dashed: nothing else is both cheaper and faster",
        f"{money.unit}/hour",
        MARGIN * max(point.x for point in points),
        MARGIN * max(point.y for point in points),
    )
    best = charts.find_low_front(points)
    line = frame.line([(point.x, point.y) for point in best], "bound")
    dots = charts.draw_dots(frame, points, {point.name for point in best})
    return charts.arrange_panels(["\n".join((*frame.axes(), line, *dots))], 1, STYLE, ZOOM)
