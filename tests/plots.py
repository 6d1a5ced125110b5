"""The plots of the documentation: charts of the console, and of the page of a replay.

`python -m tests.plots` draws them anew, in about a minute.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from inferno_operator.cli.offline.system import read_system
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.replay import (
    ReplayedLoad,
    ReplaySettings,
    build_scenario,
    replay_policies,
)
from inferno_operator.cli.report import build_replay_page
from inferno_operator.pages.charts import STYLE as LINES
from inferno_operator.pages.charts import Chart, Legend, arrange_panels
from tests.console_screens import SERVER, pages
from tests.controlplane.processes import ROOT
from tests.past import world

FOLDER = ROOT / "docs" / "pictures"

FLEET, TRACE = "samples/fleet", "samples/traces/servegen-m-large.csv"
POLICIES = ("static-peak", "hpa", "keda-slo", "inferno")
HOURS = 24.0

COLUMNS = 2
LEGEND_TOP, LEGEND_STEP, SWATCH = 40.0, 20.0, 11.0
"""Where the names of colours stand in a panel of their own [px]."""

COLOURS = (
    "#1f6feb",
    "#c2570c",
    "#1a7f42",
    "#a8328f",
    "#857400",
    "#0b7f87",
    "#6b4fd0",
    "#b42318",
    "#5b6676",
)
"""Those of the pages by day: a picture has no style sheet."""

STYLE = "\n".join(
    (
        LINES,
        ".bound { stroke: #5b6676; fill: none; stroke-width: 1.5; stroke-dasharray: 4 3 }",
        ".dot { fill: #1f6feb }",
        ".label { stroke: #fff; stroke-width: 2px; paint-order: stroke }",
        *(f".s{place} {{ fill: {colour} }}" for place, colour in enumerate(COLOURS)),
    )
)


def server_plots() -> Mapping[str, str]:
    """Cost and latency of the options of a Server, and its latencies by load, as documents."""
    charts = pages(world())[f"/servers/{SERVER}"]().charts
    named = {_title(chart): chart for chart in charts}
    choices, load = named["Cost and ITL"], named["ITL and load of one replica"]
    return {"choices.svg": _document([choices, load])}


def day_plot() -> str:
    """A recorded day: cost against targets of some policies, and the day of the operator."""
    system = read_system([str(ROOT / FLEET)])
    load = ReplayedLoad(read_trace(str(ROOT / TRACE)), TRACE, HOURS)
    scenario = build_scenario(system, load, ReplaySettings(), print)
    page = build_replay_page("", scenario, replay_policies(scenario, POLICIES, print))
    (operator,) = (section for section in page["policies"] if section["name"] == "inferno")
    return _document([page["front"], *operator["charts"]])


def _title(chart: Chart) -> str:
    found = re.search(r'class="title"[^>]*>([^<]*)<', str(chart.svg))
    assert found
    return found[1]


def _document(charts: Sequence[Chart]) -> str:
    legend = [entry for chart in charts for entry in chart.legend]
    panels = [*map(_panel, charts), *(["\n".join(_names(legend))] if legend else [])]
    return arrange_panels(panels, COLUMNS, STYLE)


def _panel(chart: Chart) -> str:
    """What is drawn inside a chart."""
    return "\n".join(str(chart.svg).splitlines()[1:-1])


def _names(legend: Iterable[Legend]) -> Iterator[str]:
    for place, entry in enumerate(legend):
        y = LEGEND_TOP + place * LEGEND_STEP
        yield f'<rect class="{entry.colour}" x="8" y="{y:g}" width="{SWATCH}" height="{SWATCH}"/>'
        yield f'<text x="{8 + 1.6 * SWATCH:g}" y="{y + SWATCH - 1:g}">{entry.name}</text>'


def main() -> int:
    """Write the plots; the exit status."""
    for name, text in {**server_plots(), "day.svg": day_plot()}.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
