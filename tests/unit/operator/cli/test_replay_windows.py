"""Servers bring the windows that they are measured over into a replay."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from inferno_operator.cli.offline.manifests import read_documents
from inferno_operator.cli.offline.system import list_measures, parse_system
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.replay import ReplayedLoad, ReplaySettings, build_scenario
from inferno_optimizer.replay.policy import OwnWindows

SAMPLES = Path(__file__).parents[4] / "samples"
TRACE = str(SAMPLES / "traces/slo-aware.csv")

CLASS = "  class: Premium\n"
WINDOWS = "  measure: {source: vLLM, labels: {m: x}, windows: {longSeconds: 900}}\n"


def ignore(_: Iterable[str]) -> None:
    """Take a warning, and do nothing."""


def windows_of(path: Path) -> OwnWindows | None:
    """What the Servers of these manifests look at in a replay."""
    documents, load = read_documents([str(path)]), ReplayedLoad(read_trace(TRACE), TRACE)
    system, measures = parse_system(documents), list_measures(documents)
    return build_scenario(system, load, ReplaySettings(), ignore, measures=measures).windows


def test_the_windows_of_a_server_are_those_of_its_manifest(tmp_path: Path) -> None:
    text = (SAMPLES / "episode/fleet.yaml").read_text()
    (tmp_path / "fleet.yaml").write_text(text.replace("  class: Premium\n", CLASS + WINDOWS, 1))

    windows = windows_of(tmp_path)

    assert windows is not None
    assert (windows.short_s.tolist(), windows.long_s.tolist()) == ([60.0], [900.0])


def test_servers_that_name_none_have_the_usual_windows() -> None:
    windows = windows_of(SAMPLES / "episode")

    assert windows is not None
    assert np.isnan((windows.short_s, windows.long_s)).all()
