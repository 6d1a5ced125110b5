"""The targets of the Makefile on a control plane."""

import os

from tests.controlplane import ControlPlane
from tests.deployment.programs import output_of


class Make:
    """`make` on a control plane."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)}
        self._kubectl = f"KUBECTL={control_plane.kubectl_program}"

    def __call__(self, target: str, *variables: str) -> str:
        """Make a target; returns what it printed."""
        command = ["make", "--no-print-directory", target, self._kubectl, *variables]
        return output_of(command, self._environment)
