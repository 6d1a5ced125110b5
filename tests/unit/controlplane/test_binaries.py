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

    def install_kubectl(self, git_version: str) -> Path:
        answer = f'{{"clientVersion": {{"gitVersion": "{git_version}"}}}}'
        return self.install("path", "kubectl", f"echo '{answer}'")

    def install_prometheus(self, version: str) -> Path:
        answer = f"prometheus, version {version} (branch: HEAD, revision: 1)"
        return self.install("path", "prometheus", f"echo '{answer}'")

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
    machine.install("path", "etcd")
    asset = machine.install("assets", "etcd")

    binaries = machine.binaries(KUBEBUILDER_ASSETS=str(asset.parent))

    assert binaries.find("etcd") == asset
    assert binaries.origin("etcd") == "KUBEBUILDER_ASSETS"


def test_what_the_assets_folder_lacks_comes_from_the_path(machine: Machine) -> None:
    asset = machine.install("assets", "etcd")
    on_path = machine.install("path", "kube-apiserver")

    binaries = machine.binaries(KUBEBUILDER_ASSETS=str(asset.parent))

    assert binaries.find("kube-apiserver") == on_path
    assert binaries.origin("kube-apiserver") == "PATH"


@pytest.mark.parametrize("version", ["v1.31.0", "v1.32.4-dispatcher", "v1.34.1+k3s1", "v1.40.0"])
def test_a_new_enough_kubectl_on_the_path_is_used(machine: Machine, version: str) -> None:
    kubectl = machine.install_kubectl(version)

    assert machine.binaries().find("kubectl") == kubectl


@pytest.mark.parametrize("version", ["v1.30.9", "v1.9.0", "unknown"])
def test_another_kubectl_is_passed_over(machine: Machine, version: str) -> None:
    machine.install_kubectl(version)
    machine.install_go()

    assert machine.binaries().origin("kubectl") == "built from source"


@pytest.mark.parametrize("version", ["3.0.0", "3.7.3", "4.1.0+ds1"])
def test_a_new_enough_prometheus_on_the_path_is_used(machine: Machine, version: str) -> None:
    prometheus = machine.install_prometheus(version)

    assert machine.binaries().find("prometheus") == prometheus


@pytest.mark.parametrize("version", ["2.53.1", ""])
def test_another_prometheus_is_passed_over(machine: Machine, version: str) -> None:
    machine.install_prometheus(version)

    assert machine.binaries().origin("prometheus") == "built from source"


def test_prometheus_is_told_its_release() -> None:
    flags = PROGRAMS["prometheus"].linker_flags

    assert flags == "-s -w -X github.com/prometheus/common/version.Version=3.7.3"


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


def test_it_is_built_into_the_cache_folder_that_the_user_names(
    machine: Machine, tmp_path: Path
) -> None:
    machine.install_go()

    built = machine.binaries(XDG_CACHE_HOME=str(tmp_path / "elsewhere")).find("etcd")

    assert built.is_relative_to(tmp_path / "elsewhere" / "inferno-operator")


def test_it_is_built_once(machine: Machine) -> None:
    machine.install_go()

    first = machine.binaries().find("etcd")
    second = machine.binaries().find("etcd")

    assert (first, machine.go_calls) == (second, 1)


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


def test_several_are_built_side_by_side(machine: Machine) -> None:
    machine.install_go()
    both_build = threading.Barrier(2, timeout=30)

    def meet(line: str) -> None:
        if line.startswith("Building"):
            both_build.wait()

    built = machine.binaries(meet).find_all(["kube-apiserver", "kube-controller-manager"])

    assert machine.go_calls == 2
    assert [path.name for path in built.values()] == ["kube-apiserver", "kube-controller-manager"]


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
