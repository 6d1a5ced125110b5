"""The programs that tests take besides Python, and the pinned Go modules they are built from."""

import hashlib
import platform
import re
import sys
from collections.abc import Callable, Mapping
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


def _no_variables(_version: str) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Program:
    """One program that tests run.

    Attributes
    ----------
    name
        Its file name.
    module, package
        What it is built from.
    build_time
        Roughly, from nothing and on two cores; for people.
    variables
        Go variables to set, for a version of the module: they tell the program its version.
    """

    name: str
    module: Module
    package: str
    build_time: str
    variables: Callable[[str], Mapping[str, str]] = _no_variables

    @property
    def linker_flags(self) -> str:
        """Flags for Go's linker: no debug information, and the variables."""
        variables = self.variables(self.module.version)
        return " ".join(["-s", "-w", *(f"-X {name}={variables[name]}" for name in variables)])


ETCD = Module(MODULES / "etcd", "go.etcd.io/etcd/server/v3")
HELM = Module(MODULES / "helm", "helm.sh/helm/v3")
INFERENCE_SIM = Module(MODULES / "llm-d-inference-sim", "github.com/llm-d/llm-d-inference-sim")
KUBERNETES = Module(MODULES / "kubernetes", "k8s.io/kubernetes")
PROMETHEUS = Module(MODULES / "prometheus", "github.com/prometheus/prometheus")


def _kubernetes_variables(version: str) -> dict[str, str]:
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return {f"k8s.io/component-base/version.{name}": value for name, value in values.items()}


def _prometheus_variables(version: str) -> dict[str, str]:
    """Release 3.7.3 is version v0.307.3 of the Go module."""
    major_minor, patch = version.removeprefix("v0.").split(".")
    major, minor = divmod(int(major_minor), 100)
    return {"github.com/prometheus/common/version.Version": f"{major}.{minor}.{patch}"}


def _kubernetes(name: str, build_time: str) -> Program:
    package = f"{KUBERNETES.upstream}/cmd/{name}"
    return Program(name, KUBERNETES, package, build_time, _kubernetes_variables)


def _prometheus(name: str, build_time: str) -> Program:
    # Without the tag `builtinassets`: the pages for people are not part of the module.
    package = f"{PROMETHEUS.upstream}/cmd/{name}"
    return Program(name, PROMETHEUS, package, build_time, _prometheus_variables)


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", ETCD, ETCD.upstream, "1 minute"),
        Program("helm", HELM, f"{HELM.upstream}/cmd/helm", "2 minutes"),
        Program(
            "llm-d-inference-sim",
            INFERENCE_SIM,
            f"{INFERENCE_SIM.upstream}/cmd/llm-d-inference-sim",
            "5 minutes",
        ),
        _kubernetes("kube-apiserver", "4 minutes"),
        _kubernetes("kubectl", "1 minute"),
        _kubernetes("kube-controller-manager", "2 minutes"),
        _prometheus("prometheus", "7 minutes"),
        _prometheus("promtool", "2 minutes"),
    )
}
