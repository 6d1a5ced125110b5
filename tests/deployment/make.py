"""The targets of the Makefile on a control plane."""

import os
import sys
from pathlib import Path

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


def make_files(target: str, folder: Path, *variables: str) -> str:
    """Make a target that writes files into a folder; returns what it printed."""
    environment = Path(sys.prefix)  # as it is: it is not to be made anew while it is in use
    kept = (f"VENV={environment}", f"--old-file={environment / '.ready'}")
    command = ["make", "--no-print-directory", target, f"DIST={folder}", *kept, *variables]
    return output_of(command)
