"""Together or apart? The picture of the guide: what the sample costs either way.

`python -m tests.apart` draws it anew, in some seconds.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from inferno_operator.cli.offline.system import read_system
from inferno_operator.pages import charts
from inferno_operator.pages.charts import Frame
from inferno_optimizer.explain.options import explain
from inferno_optimizer.system import System
from tests.controlplane.processes import ROOT

FILE = ROOT / "docs" / "pictures" / "apart.svg"

SERVER = "documents"

LATENCIES = np.arange(11.0, 41.0)
"""Targets of the inter-token latency [ms]."""

PROMPTS = np.arange(250, 8001, 250)
"""Input tokens of a request."""

STYLE = f"{charts.STYLE}\n.apart {{ stroke: #c33; fill: none; stroke-width: 1.5 }}"

Costs = list[tuple[float, float]]


def costs(system: System) -> tuple[float | None, float | None]:
    """The least cost of the server together and apart; None where the targets are out of reach."""
    options = [option for option in explain(system, SERVER) if not option.reason]
    apart = [option.cost for option in options if "prefill" in option.accelerator]
    together = [option.cost for option in options if "prefill" not in option.accelerator]
    return min(together, default=None), min(apart, default=None)


def picture() -> str:
    """The picture as an SVG document."""
    system = read_system([str(ROOT / "samples/apart")])

    def with_target(itl: float) -> System:
        classes = tuple(
            replace(c, targets={m: replace(t, itl_ms=itl) for m, t in c.targets.items()})
            for c in system.classes
        )
        return replace(system, classes=classes)

    def with_prompts(tokens: float) -> System:
        servers = tuple(
            replace(s, current=replace(s.current, load=replace(s.load, input_tokens=int(tokens))))
            for s in system.servers
        )
        return replace(system, servers=servers)

    panels = (
        _panel("By target: 8000 input tokens", "slo-itl [ms]", LATENCIES.tolist(), with_target),
        _panel("By prompt: slo-itl 16 ms", "input tokens", PROMPTS.tolist(), with_prompts),
    )
    return charts.arrange_panels(panels, len(panels), STYLE)


def _panel(
    title: str, x_label: str, values: Sequence[float], system: Callable[[float], System]
) -> str:
    lines: tuple[Costs, Costs] = ([], [])
    for value in values:
        for line, cost in zip(lines, costs(system(value)), strict=True):
            if cost is not None:
                line.append((value, cost))
    highest = max(cost for line in lines for _, cost in line)
    frame = Frame(title, x_label, "cents/hour", max(values), 1.05 * highest)
    return "\n".join(_drawn(frame, *lines))


def _drawn(frame: Frame, together: Costs, apart: Costs) -> Iterator[str]:
    yield from frame.axes()
    yield frame.line(together)
    yield frame.line(apart, "apart")


def main() -> int:
    """Write the picture; the exit status."""
    FILE.write_text(picture(), encoding="utf-8")
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
