"""A console that runs, and somebody who may look at a namespace."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT
from tests.controlplane import ControlPlane

COMMAND = (sys.executable, "-m", "inferno_operator.cli.kubectl.main", "console", "--no-browser")
PEOPLE = ROOT / "manifests" / "kustomize" / "rbac" / "people"


@contextmanager
def running_console(kubeconfig: Path, namespace: str, log: Path) -> Iterator[str]:
    """Yield the address that a console prints."""
    options = ("--kubeconfig", str(kubeconfig), "--namespace", namespace)
    with (
        log.open("w") as written,
        subprocess.Popen(
            [*COMMAND, *options], stdout=subprocess.PIPE, stderr=written, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
    assert process.returncode == 0, log.read_text()


def user_in(control_plane: ControlPlane, namespace: str, name: str, *roles: str) -> Path:
    """A kubeconfig of somebody with these roles in a namespace."""
    for role in ("approve", "view"):
        control_plane.kubectl("apply", "--filename", PEOPLE / f"{role}.yaml")
    control_plane.kubectl("create", "serviceaccount", name, "--namespace", namespace)
    for role in roles:
        control_plane.kubectl(
            *("create", "rolebinding", f"{name}-{role}", "--namespace", namespace),
            *(f"--clusterrole={role}", f"--serviceaccount={namespace}:{name}"),
        )
    return control_plane.service_account_kubeconfig(namespace, name)
