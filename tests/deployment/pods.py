"""Pods of rendered Deployments, run from what the image has in it, without a container engine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ProgramError

Manifest = Mapping[str, Any]

VIEW = Path(__file__).with_name("pod-view.sh")
USER = 65532
POD_IP = "127.0.0.1"
ISOLATED = [
    *("unshare", "--user", f"--map-user={USER}", f"--map-group={USER}"),
    *("--keep-caps", "--mount"),
]
ACCOUNT = Path("kubernetes.io", "serviceaccount")
SECRETS = "/var/run/secrets"


@contextmanager
def image() -> Iterator[Path]:
    """What the image has in it, in a folder that goes when the context ends."""
    folder = Path(tempfile.mkdtemp(prefix="inferno-image-"))
    try:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = ROOT / "manifests" / "image" / "install.sh"
        subprocess.run([script, ROOT, folder], env={**os.environ, "PATH": path}, check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def image_environment(folder: Path) -> dict[str, str]:
    """Variables that the Dockerfile sets in its last stage."""
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    lines = [line.removeprefix("ENV ") for line in stage.splitlines() if line.startswith("ENV ")]
    variables = dict(word.split("=", 1) for line in lines for word in line.split())
    path = variables["PATH"].replace("/opt/inferno", str(folder)).replace("$PATH", "/usr/bin:/bin")
    return {**variables, "PATH": path}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Deployment.

    Attributes
    ----------
    deployment
        As it is rendered.
    secrets
        The Secrets of its namespace: bytes by key.
    """

    deployment: Manifest
    secrets: Mapping[str, Mapping[str, bytes]]

    @property
    def namespace(self) -> str:
        namespace: str = self.deployment["metadata"]["namespace"]
        return namespace

    @property
    def account(self) -> str:
        account: str = self._spec["serviceAccountName"]
        return account

    def command(
        self,
        image: Path,
        folder: Path,
        more_variables: Mapping[str, str],
        service_account: Mapping[str, bytes],
    ) -> Sequence[str | Path]:
        """What to start in its place; files that it is to see are made in `folder`."""
        _check_isolation()
        for name, content in service_account.items():
            _write(folder / "secrets" / ACCOUNT / name, content)
        for mount in self._container["volumeMounts"]:
            self._fill(folder, mount)
        hosts = _write(folder / "hosts", f"{POD_IP} localhost inferno-optimizer\n".encode())
        variables = {**image_environment(image), **self.environment, **more_variables}
        environment = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        program = [image / "bin" / "inferno", *self._container["args"]]
        return [*ISOLATED, "sh", VIEW, image, folder / "secrets", hosts, *environment, *program]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that its Deployment sets."""
        return {item["name"]: self._value(item) for item in self._container["env"]}

    def template(self, **changes: object) -> Manifest:
        """Metadata and spec of the pod itself, with changes of its spec."""
        metadata = {"name": self.account, "namespace": self.namespace}
        return {"metadata": metadata, "spec": {**self._spec, **changes}}

    @property
    def _spec(self) -> Manifest:
        spec: Manifest = self.deployment["spec"]["template"]["spec"]
        return spec

    @property
    def _container(self) -> Manifest:
        (container,) = self._spec["containers"]
        return dict(container)

    def _value(self, item: Manifest) -> str:
        if "value" in item:
            return str(item["value"])
        fields = {"metadata.namespace": self.namespace, "status.podIP": POD_IP}
        return fields[item["valueFrom"]["fieldRef"]["fieldPath"]]

    def _fill(self, folder: Path, mount: Manifest) -> None:
        """Put the Secret of a mount where the pod is to see it."""
        volume = next(v for v in self._spec["volumes"] if v["name"] == mount["name"])
        if "secret" not in volume:
            return
        contents = self.secrets[volume["secret"]["secretName"]]
        items = volume["secret"].get("items", [{"key": key, "path": key} for key in contents])
        place = folder / "secrets" / Path(mount["mountPath"]).relative_to(SECRETS)
        for item in items:
            _write(place / item["path"], contents[item["key"]])


def service_account(control_plane: ControlPlane, pod: Pod) -> dict[str, bytes]:
    """The files by which a pod knows who it is."""
    created = control_plane.kubectl("create", "token", pod.account, "--namespace", pod.namespace)
    return {
        "token": created.stdout.strip().encode(),
        "ca.crt": control_plane.certificate_authority.read_bytes(),
        "namespace": pod.namespace.encode(),
    }


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _check_isolation() -> None:
    tried = subprocess.run(
        [*ISOLATED, "mount", "-t", "tmpfs", "tmpfs", "/tmp"],  # noqa: S108 - in its own view
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise ProgramError(
            "a pod's view takes user namespaces, which this machine refuses:"
            f" {tried.stderr.strip()}"
            " (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        )
