"""`kubectl inferno` as its users run it: kubectl finds the plugin on PATH."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from inferno_operator.cli.kubectl.main import main
from tests.controlplane import ControlPlane
from tests.in_process import called


class Plugin:
    """A plugin on PATH, and a kubeconfig whose context names a namespace.

    Parameters
    ----------
    control_plane
        Whose kubectl and API server to use, with the administrator's rights.
    namespace
        Of the context.
    folder
        Where plugin and kubeconfig are put, in place of earlier ones.
    """

    def __init__(self, control_plane: ControlPlane, namespace: str, folder: Path) -> None:
        self._kubectl = control_plane.kubectl_program
        self.kubeconfig = folder / "kubeconfig"
        config = yaml.safe_load(control_plane.kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig.write_text(yaml.safe_dump(config))
        program = folder / "kubectl-inferno"
        program.unlink(missing_ok=True)
        program.symlink_to(Path(sys.executable).with_name("kubectl-inferno"))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("INFERNO_", "COLUMNS"))}
        self.environment: Mapping[str, str] = kept | {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(control_plane.kubectl_cache),
        }

    def command(self, *arguments: str | Path) -> list[str]:
        return [str(self._kubectl), "inferno", *map(str, arguments)]

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """What `command` does, to its end, without the processes in between."""
        done = called(main, arguments, environment=self.environment)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def output(self, *arguments: str | Path) -> str:
        """What it prints where it succeeds."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
