"""Screens of the documentation, made by the real program on a real control plane.

`python -m tests.screens` makes them anew; a test tells when they differ from what it would.
"""

import re
import shlex
import sys
import tempfile
from pathlib import Path

from tests.controlplane import ControlPlane
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT
from tests.plugin import Plugin

FOLDER = ROOT / "docs" / "screens"
SAMPLE = ROOT / "samples" / "fleet"
NAMESPACE = "llm"

TIME_LIMIT_S = "600"
"""Of the solver, so that screens are the same on a busy machine [s]."""

VARYING = (
    (re.compile(r"optimized \d+[smhd] ago"), "optimized 2s ago"),
    (re.compile(r", \d+\.\d+ s$", re.MULTILINE), ", 0.100 s"),
)
"""What is another one each time, and what is shown in its place."""


def make_screens(plugin: Plugin) -> dict[str, str]:
    """Text by name of file; the fleet sample is in the plugin's namespace, an operator runs."""
    before = _screen(plugin, "plan")
    plugin.output("optimize", "--wait")
    fewer = _screen(plugin, "plan", "--set", "capacity.H100=6")
    return {"plan.txt": f"{before}\n{fewer}", "top.txt": _screen(plugin, "top")}


def _screen(plugin: Plugin, *arguments: str) -> str:
    limit = ("--time-limit", TIME_LIMIT_S) if "plan" in arguments else ()
    text = plugin.output(*arguments, *limit)
    for varying, shown in VARYING:
        text = varying.sub(shown, text)
    return f"$ kubectl inferno {shlex.join(arguments)}\n{text}"


def main() -> int:
    """Write them; the exit status."""
    with ControlPlane() as control_plane, tempfile.TemporaryDirectory() as folder:
        control_plane.install_crds(ROOT / "crds")
        control_plane.create_namespace(NAMESPACE)
        control_plane.kubectl("apply", "--namespace", NAMESPACE, "--kustomize", SAMPLE)
        operator = OperatorProcess(
            control_plane.processes,
            "operator",
            control_plane.kubeconfig,
            NAMESPACE,
            {"INFERNO_SOLVER_TIME_LIMIT": TIME_LIMIT_S},
        )
        operator.wait_until_ready()
        screens = make_screens(Plugin(control_plane, NAMESPACE, Path(folder)))
        operator.stop()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in screens.items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
