"""The programs that tests take besides Python, and the pinned Go modules they are built from."""

import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "go"


@dataclass(frozen=True)
class Module:
    """A folder with a go.mod and go.sum of ours, which pin one upstream module and all it needs.

    Attributes
    ----------
    folder
        Where go.mod is.
    upstream
        Path of the upstream module.
    """

    folder: Path
    upstream: str

    @property
    def version(self) -> str:
        """Version of the upstream module, as go.mod pins it."""
        text = (self.folder / "go.mod").read_text()
        pin = re.search(rf"^\s*(?:require )?{re.escape(self.upstream)} (v\S+)", text, re.MULTILINE)
        if pin is None:
            raise ValueError(f"{self.folder}/go.mod doesn't require {self.upstream}")
        return pin[1]

    @property
    def key(self) -> str:
        """Name for what is built from exactly these versions, for a machine like this one."""
        digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
        for file in sorted(self.folder.iterdir()):
            digest.update(file.read_bytes())
        return f"{self.folder.name}-{self.version}-{digest.hexdigest()[:12]}"


@dataclass(frozen=True)
class Program:
    """One program of a control plane.

    Attributes
    ----------
    name
        Its file name.
    module, package
        What it is built from.
    build_time
        Roughly, from nothing and on two cores; for people.
    version_package
        Go package with the variables `gitVersion`, `gitMajor`, `gitMinor` to set, or empty.
    """

    name: str
    module: Module
    package: str
    build_time: str
    version_package: str = ""

    @property
    def linker_flags(self) -> str:
        """Flags for Go's linker: no debug information, and the version where it is asked for."""
        flags = ["-s", "-w"]
        if self.version_package:
            version = self.module.version
            major, minor = version.removeprefix("v").split(".")[:2]
            values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
            flags += [f"-X {self.version_package}.{name}={value}" for name, value in values.items()]
        return " ".join(flags)


ETCD = Module(MODULES / "etcd", "go.etcd.io/etcd/server/v3")
HELM = Module(MODULES / "helm", "helm.sh/helm/v3")
KUBERNETES = Module(MODULES / "kubernetes", "k8s.io/kubernetes")
PROMQL = Module(MODULES / "promql", "github.com/prometheus/prometheus")


def _kubernetes(name: str, build_time: str) -> Program:
    package = f"{KUBERNETES.upstream}/cmd/{name}"
    return Program(name, KUBERNETES, package, build_time, "k8s.io/component-base/version")


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", ETCD, ETCD.upstream, "1 minute"),
        Program("helm", HELM, f"{HELM.upstream}/cmd/helm", "2 minutes"),
        Program("promql", PROMQL, ".", "1 minute"),  # of our own, around the engine of Prometheus
        _kubernetes("kube-apiserver", "4 minutes"),
        _kubernetes("kubectl", "1 minute"),
        _kubernetes("kube-controller-manager", "2 minutes"),
    )
}
