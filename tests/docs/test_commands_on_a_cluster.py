"""What pages show of a cluster happens on a real control plane, one page after the other."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.docs.elsewhere import elsewhere
from tests.plugin import Plugin
from tests.reference.shown import OF_THE_SHELL, ROOT, pages, run, shown
from tests.tiers import extended

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.usefixtures("crds_installed"),
]

OURS = {
    page: [c for c in shown(page) if "kubectl " in c.text and not elsewhere(c)] for page in pages()
}
PAGES = [page for page, commands in OURS.items() if commands]


@pytest.mark.parametrize("page", extended(*PAGES), ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path,
    control_plane: ControlPlane,
    namespace: str,
    operator: StartOperator,
    tmp_path: Path,
) -> None:
    operator()
    plugin = Plugin(control_plane, namespace, tmp_path)
    environment = dict(plugin.environment)
    programs = (Path(control_plane.kubectl_program).parent, Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([*map(str, programs), environment["PATH"]])
    if not any("kubectl apply" in command.text for command in OURS[page]):
        run(f"kubectl apply --kustomize {ROOT / 'samples/fleet'}", **environment)

    for command in OURS[page]:
        done = (
            plugin.run(*arguments)
            if (arguments := of_the_plugin(command.text))
            else run(command.text, **environment)
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert not command.output or command.fits(done.stdout), f"{command}\n{done.stdout}"


def of_the_plugin(text: str) -> list[str]:
    """What follows `kubectl inferno` in a command that needs no shell."""
    words = [] if OF_THE_SHELL & set(text) else shlex.split(text)
    return words[2:] if words[:2] == ["kubectl", "inferno"] else []
