"""The targets of the Makefile on a control plane."""

import os
import subprocess

from tests.conftest import ROOT
from tests.controlplane import ControlPlane


class Make:
    """`make` on a control plane."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)}
        self._kubectl = f"KUBECTL={control_plane.kubectl_program}"

    def __call__(self, target: str, *variables: str) -> str:
        """Make a target; returns what it printed."""
        completed = subprocess.run(
            ["make", "--no-print-directory", target, self._kubectl, *variables],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr

        return completed.stdout
