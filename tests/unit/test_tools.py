"""Tools of the tests: programs and ports, workers, threads, event loops, and tiers."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import settings

from tests import loops
from tests.cluster.background import Background
from tests.conftest import ROOT
from tests.controlplane import ControlPlaneError, kept
from tests.controlplane.binaries import Binaries
from tests.controlplane.errors import BinaryError
from tests.controlplane.ports import HOST, free_port, never_given
from tests.controlplane.processes import Processes
from tests.controlplane.programs import PROGRAMS
from tests.demo import require_decisions, saving
from tests.examples import load_profile, several
from tests.loops import PatientLoop, VirtualTimeLoop
from tests.tiers import sampled
from tests.workers import Length, group_of, next_group, places, waits

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


# Processes that are left running on purpose, ports, and what the demo makes of Servers


def test_what_was_detached_stays_until_it_is_stopped(tmp_path: Path) -> None:
    record = tmp_path / "new" / "record.json"
    with Processes() as processes:
        processes.start("sleeper", ["sleep", "600"])
        processes.detach(record, {"kubeconfig": "some/path"})

    found = kept.running(record)
    stayed = processes.folder.exists()

    assert kept.stop(record)
    assert found is not None
    assert (found["folder"], found["kubeconfig"]) == (str(processes.folder), "some/path")
    assert (stayed, processes.folder.exists(), record.exists()) == (True, False, False)


def test_a_record_that_a_crash_left_behind_is_not_believed(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text('{"pid": 1}')

    assert kept.running(record) is None
    assert not kept.stop(record)


# Ports for programs that have to be told one, also while others begin to listen


TIMES = 100


def test_a_free_port_is_never_given_to_who_asks_for_any() -> None:
    with socket.create_server((HOST, 0)) as listening:
        given = {listening.getsockname()[1]}
    for _ in range(TIMES):
        with (
            socket.create_server((HOST, 0)) as other,
            socket.create_connection(other.getsockname()) as client,
        ):
            given |= {other.getsockname()[1], client.getsockname()[1]}

    told = {free_port() for _ in range(TIMES)}

    below, above = never_given()
    assert all(port in below or port in above for port in told)
    assert not any(port in below or port in above for port in given)


# What the demo makes of the Servers that it reads


NOTHING = {"accelerator": "", "numReplicas": 0}


def server(
    name: str, current: float, desired: float | None, reason: str | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "currentAlloc": {"accelerator": "A100", "numReplicas": 1, "cost": current},
        "desiredAlloc": NOTHING
        if desired is None
        else {"accelerator": "G2", "numReplicas": 1, "cost": desired},
    }
    conditions = [{"type": "Allocated", "reason": reason, "message": "why"}] if reason else []
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


def test_the_total_tells_what_is_saved_and_how_many_are_served() -> None:
    servers = [server("a", 100, 60), server("b", 100, 65), server("c", 50, None, "NoCapacity")]

    assert (
        saving(servers) == "Total: 250.00 -> 125.00, 125.00 less (-50%); 2 of 3 have an allocation"
    )


def test_only_a_server_with_neither_an_allocation_nor_a_reason_why_not_is_named() -> None:
    decided = [server("a", 1, 2), server("b", 1, None, "NoCapacity")]
    require_decisions(decided)

    with pytest.raises(ControlPlaneError) as error:
        require_decisions([*decided, server("forgotten", 1, None)])

    assert str(error.value) == "no decision for forgotten"


# Which tests are given to the same worker, and when


CRDS = "tests/cluster/test_model_booster_crds.py"
OVERLAYS = "tests/cluster/deployment/test_deployment.py"


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/unit/test_a.py::TestB::test_c[d::e]", "tests/unit/test_a.py"),
        ("tests/cluster/test_a.py::test_b[c]", "tests/cluster/test_a.py::test_b[c]"),
        ("tests/cluster/deployment/test_a.py::test_b", "tests/cluster/deployment"),
        (f"{OVERLAYS}::test_a[b]", OVERLAYS),
        ("tests/cluster/deployment/test_rbac.py::test_a[b]", OVERLAYS),
        ("tests/cluster/deployment/test_image.py::test_a", OVERLAYS),
        (f"{CRDS}::TestRecordings::test_a", CRDS),
    ],
)
def test_tests_that_share_what_takes_long_to_make_stay_together(test: str, group: str) -> None:
    assert group_of(test) == group


def test_what_takes_long_begins_first_and_small_files_fill_the_end() -> None:
    lengths = {
        "tests/unit/test_small.py::test_a": Length.SHORT,
        "tests/unit/test_large.py::test_a": Length.SHORT,
        "tests/unit/test_large.py::test_b": Length.SHORT,
        "tests/unit/test_slow.py::test_a": Length.SHORT,
        "tests/unit/test_slow.py::test_b": Length.SLOW,
        "tests/unit/test_longest.py::test_a": Length.SHORT,
        "tests/unit/test_longest.py::test_b": Length.MINUTES,
        "tests/prometheus/test_a.py::test_b": Length.SHORT,
        "tests/cluster/test_a.py::test_b": Length.SHORT,
        "tests/cluster/test_a.py::test_c": Length.SLOW,
        "tests/cluster/test_a.py::test_d": Length.MINUTES,
        "tests/cluster/deployment/test_a.py::test_b": Length.SHORT,
        f"{OVERLAYS}::test_a": Length.SHORT,
        f"{OVERLAYS}::test_b": Length.SHORT,
    }

    place = places(lengths)

    groups = list(dict.fromkeys(map(group_of, sorted(lengths, key=place.__getitem__))))
    assert [group for group in groups if waits(group)] == [
        OVERLAYS,
        "tests/cluster/deployment",
        "tests/cluster/test_a.py::test_d",
        "tests/prometheus/test_a.py",
        "tests/cluster/test_a.py::test_c",
        "tests/cluster/test_a.py::test_b",
    ]
    assert [group for group in groups if not waits(group)] == [
        "tests/unit/test_longest.py",
        "tests/unit/test_slow.py",
        "tests/unit/test_large.py",
        "tests/unit/test_small.py",
    ]


def test_every_second_worker_computes_beside_those_that_wait_and_all_help_at_the_end() -> None:
    left = [OVERLAYS, CRDS, "tests/unit/test_a.py", "tests/docs/test_b.py"]

    begun = []
    for worker in (0, 1, 2, 3):
        begun.append(next_group(left, worker))
        left.remove(begun[-1])

    assert begun == [OVERLAYS, "tests/unit/test_a.py", CRDS, "tests/docs/test_b.py"]
    assert next_group([CRDS], 1) == CRDS
    assert next_group(["tests/unit/test_a.py"], 2) == "tests/unit/test_a.py"


# What runs beside tests of a cluster ends with its test, and fails no other one


class Waiting(Background):
    """Waits to be stopped."""

    def work(self) -> None:
        """Wait."""
        self._stopped.wait()


class Failing(Background):
    """Ends at once."""

    def work(self) -> None:
        """Fail as a client does whose connection is refused."""
        raise OSError("refused")


def test_what_ends_a_thread_is_raised_where_it_is_stopped() -> None:
    thread = Failing()
    thread.start()
    thread.join()

    with pytest.raises(OSError, match="refused"):
        thread.stop()


@pytest.mark.parametrize("first", [False, True])
def test_a_thread_that_failed_leaves_no_other_one_running(first: bool) -> None:
    waiting, failing = Waiting(), Failing()
    one, other = (failing, waiting) if first else (waiting, failing)

    with pytest.raises(OSError, match="refused"), one, other:
        pass

    assert not waiting.is_alive()


def test_a_thread_that_never_began_ends() -> None:
    Waiting().stop()


# The event loops of tests: one ends after its connections, one waits for none of its timers


def test_connections_that_close_late_are_closed_when_the_loop_is() -> None:
    async def leave_open(connection: socket.socket) -> None:
        _, writer = await asyncio.open_connection(sock=connection)
        asyncio.get_running_loop().call_later(0.05, writer.close)

    here, there = socket.socketpair()
    with there, asyncio.Runner(loop_factory=PatientLoop) as runner:
        runner.run(leave_open(here))

    assert here.fileno() == -1


def test_what_nothing_closes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PATIENCE_S", 0.05)
    here, there = socket.socketpair()
    loop = PatientLoop()
    with here, there:
        loop.add_reader(here, lambda: None)

        with pytest.raises(TimeoutError):
            loop.close()

    assert loop.is_closed()


def test_asyncio_run_uses_it() -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(asyncio.run(running()), PatientLoop)


def test_virtual_time_stands_still_while_bytes_are_under_way() -> None:
    here, there = socket.socketpair()

    def answer() -> None:
        there.sendall(b"answer")
        there.recv(len(b"question"))

    async def ask() -> tuple[bytes, float]:
        reader, writer = await asyncio.open_connection(sock=here)
        writer.write(b"question")
        other = Thread(target=answer)
        other.start()
        async with asyncio.timeout(10):
            answered = await reader.readexactly(len(b"answer"))
        other.join()
        writer.close()
        return answered, asyncio.get_running_loop().time()

    with there, asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(ask()) == (b"answer", 0.0)


def test_virtual_time_is_that_of_both_ends_of_a_connection() -> None:
    async def slow_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while text := await reader.read(1):
            await asyncio.sleep(60)
            writer.write(text)
        writer.close()

    async def exchange() -> list[float]:
        async with await asyncio.start_server(slow_echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            times = []
            for _ in range(3):
                writer.write(b"x")
                await reader.readexactly(1)
                times.append(asyncio.get_running_loop().time())
            writer.close()
            await writer.wait_closed()
        return times

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(exchange()) == [60.0, 120.0, 180.0]


# Each test belongs to one of two commands, and CI runs both


@pytest.fixture
def _profile_afterwards() -> Iterator[None]:
    """What a test loads is not what others take."""
    name = settings.get_current_profile_name()
    yield
    settings.load_profile(name)


def test_each_eighth_of_many_values_stays_in_make_test() -> None:
    values = sampled("abcdefghijklmnop")

    assert [value for value in values if isinstance(value, str)] == ["a", "i"]
    assert len(values) == 16


@pytest.mark.usefixtures("_profile_afterwards")
@pytest.mark.parametrize(
    ("profile", "asked", "usual"), [("tests", 5, 12), ("extended", 40, 100), ("soak", 800, 2000)]
)
def test_make_test_tries_an_eighth_of_the_examples_of_a_property(
    profile: str, asked: int, usual: int
) -> None:
    load_profile(profile)

    assert several(40).max_examples == asked
    assert settings().max_examples == usual
    assert settings().deadline is several(40).deadline is None


def test_ci_runs_two_commands_that_have_all_tests_between_them() -> None:
    makefile = (ROOT / "Makefile").read_text()

    chosen = {
        name: re.findall(
            rf"^{name}: (?:.*\n\t)*?\$\(PYTEST\) -m (.*) --durations", makefile, re.MULTILINE
        )
        for name in ("test", "extended-test")
    }

    assert chosen == {
        "test": ['"not extended"'],
        "extended-test": ['"extended or hypothesis" --all-examples'],
    }
    assert {f"make {name}" for name in chosen} <= set((ROOT / ".ci/run").read_text().splitlines())
