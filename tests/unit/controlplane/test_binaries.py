"""Where the control plane's programs come from; with small scripts in place of the real ones."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.controlplane.binaries import Binaries
from tests.controlplane.errors import BinaryError
from tests.controlplane.programs import PROGRAMS

# Stands for Go: writes its arguments to where `-o` points, and counts its calls.
GO = """
echo call >> {folder}/go-calls
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && { echo "$@" > "$argument"; chmod +x "$argument"; }
  previous=$argument
done
"""


@dataclass(frozen=True)
class Machine:
    """A computer with hardly anything installed."""

    home: Path

    def install(self, folder: str, name: str, script: str = "") -> Path:
        path = self.home / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def install_go(self, script: str = GO) -> None:
        self.install("path", "go", script.replace("{folder}", str(self.home)))

    def binaries(self, say: Callable[[str], None] = lambda _: None, **more: str) -> Binaries:
        search_path = f"{self.home / 'path'}:/usr/bin:/bin"
        return Binaries({"HOME": str(self.home), "PATH": search_path, **more}, say)

    @property
    def go_calls(self) -> int:
        calls = self.home / "go-calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_assets_folder_comes_before_the_path(machine: Machine) -> None:
    asset = machine.install("assets", "etcd")
    on_path = [machine.install("path", name) for name in ("etcd", "kube-apiserver")]

    binaries = machine.binaries(KUBEBUILDER_ASSETS=str(asset.parent))

    assert (binaries.find("etcd"), binaries.origin("etcd")) == (asset, "KUBEBUILDER_ASSETS")
    assert binaries.find("kube-apiserver") == on_path[1]
    assert binaries.origin("kube-apiserver") == "PATH"


KUBECTL = '{"clientVersion": {"gitVersion": "%s"}}'
PROMETHEUS = "prometheus, version %s (branch: HEAD, revision: 1)"


@pytest.mark.parametrize(
    ("name", "says", "version", "is_used"),
    [
        *(("kubectl", KUBECTL, v, True) for v in ("v1.31.0", "v1.32.4-x", "v1.34.1+k3s1")),
        *(("kubectl", KUBECTL, v, False) for v in ("v1.30.9", "v1.9.0", "unknown")),
        *(("prometheus", PROMETHEUS, v, True) for v in ("3.0.0", "3.7.3", "4.1.0+ds1")),
        *(("prometheus", PROMETHEUS, v, False) for v in ("2.53.1", "")),
    ],
)
def test_a_new_enough_program_on_the_path_is_used_and_another_is_passed_over(
    machine: Machine, name: str, says: str, version: str, is_used: bool
) -> None:
    machine.install("path", name, f"echo '{says % version}'")
    machine.install_go()

    assert machine.binaries().origin(name) == ("PATH" if is_used else "built from source")


def test_a_program_that_is_nowhere_is_built_from_its_pinned_module(machine: Machine) -> None:
    machine.install_go()
    said: list[str] = []

    built = machine.binaries(said.append).find("kube-apiserver")

    arguments = built.read_text()
    assert built.is_relative_to(machine.home / ".cache" / "inferno-operator" / "controlplane")
    assert "-mod=readonly" in arguments
    assert f"version.gitVersion={PROGRAMS['kube-apiserver'].module.version}" in arguments
    assert arguments.split()[-1] == "k8s.io/kubernetes/cmd/kube-apiserver"
    assert [line.split()[0] for line in said] == ["Building", "Built"]
    assert machine.binaries().find("kube-apiserver") == built
    assert machine.go_calls == 1
    elsewhere = machine.home / "elsewhere"
    moved = machine.binaries(XDG_CACHE_HOME=str(elsewhere)).find("etcd")
    assert moved.is_relative_to(elsewhere / "inferno-operator")


def test_of_two_runs_at_once_one_builds_and_the_other_says_that_it_waits(machine: Machine) -> None:
    machine.install_go()
    said_by_second: list[str] = []
    second_waits = threading.Event()

    def note(line: str) -> None:
        said_by_second.append(line)
        second_waits.set()

    second = threading.Thread(target=machine.binaries(note).find, args=["etcd"])

    def start_second(line: str) -> None:
        if line.startswith("Building"):
            second.start()
            second_waits.wait(timeout=30)

    machine.binaries(start_second).find("etcd")
    second.join()

    assert machine.go_calls == 1
    assert said_by_second == ["Another run is building etcd; waiting for it"]


def test_a_failed_build_shows_what_go_said_and_leaves_nothing(machine: Machine) -> None:
    machine.install_go("echo 'no space left on device' >&2; exit 1")

    with pytest.raises(BinaryError, match=r"building etcd failed.*\nno space left on device"):
        machine.binaries().find("etcd")

    assert [path.name for path in machine.home.rglob("*etcd*/*")] == [".etcd.lock"]


def test_the_rest_of_a_killed_build_is_removed_and_not_used(machine: Machine) -> None:
    machine.install_go()
    built = machine.binaries().find("etcd")
    built.unlink()
    rest = built.parent / ".building-etcd-killed" / "etcd"
    rest.parent.mkdir()
    rest.write_text("half")

    again = machine.binaries().find("etcd")

    assert again.read_text() != "half"
    assert not rest.exists()


def test_without_go_one_line_says_what_to_install(machine: Machine) -> None:
    binaries = machine.binaries(PATH=str(machine.home))

    with pytest.raises(BinaryError, match=r"install Go .* or set KUBEBUILDER_ASSETS") as refused:
        binaries.find("etcd")

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_a_pinned_version(name: str) -> None:
    module = PROGRAMS[name].module

    assert module.version.startswith("v")
    assert f"{module.upstream} {module.version} " in (module.folder / "go.sum").read_text()
