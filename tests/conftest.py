"""Fixtures for tests on a real control plane: one for the run, a namespace for each test."""

import asyncio
import gc
import itertools
import os
import signal
import sys
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.controlplane.cluster import DEPLOYMENTS
from tests.controlplane.errors import BinaryError
from tests.controlplane.operator_process import OperatorProcess, refusal_to_start
from tests.controlplane.processes import Processes
from tests.examples import load_profile
from tests.loops import PatientLoop
from tests.workers import Length, Sharing, places

ROOT = Path(__file__).parents[1]
NEEDS = {
    "control_plane": ["etcd", "kube-apiserver", "kubectl"],
    "controller_manager": ["kube-controller-manager"],
    "day_programs": ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "prometheus"],
    "deployment_controllers": ["kube-controller-manager"],
    "deployment_cluster": ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager"],
    "helm": ["helm"],
    "kubectl": ["kubectl"],
    "plane": ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager"],
    "inference_sim": ["llm-d-inference-sim"],
    "prometheus_program": ["prometheus"],
    "promtool": ["promtool"],
}
GO_GARBAGE_PERCENT = "300"
"""Garbage that may stand beside what is in use; an API server takes 450 MiB instead of 300."""

LONG = {"minutes": Length.MINUTES, "slow": Length.SLOW, "extended": Length.SLOW}
"""Marks of tests that workers begin with, the longest first."""

WORKLOADS = ("deployments", "replicasets", "pods")
"""What controllers of Deployments look at, owners first."""

WORKER = "PYTEST_XDIST_WORKER"
FIRST = "gw0"
OPERATORS = pytest.StashKey[list[OperatorProcess]]()
LOGS = pytest.StashKey[dict[str, str]]()
"""Logs of the operators of a test that has ended, by their names."""


class StartOperator(Protocol):
    """Starts an operator and waits until it is ready.

    It watches the test's namespace with the administrator's rights unless told otherwise
    (`namespace=None`: all namespaces); `environment` adds variables.
    """

    def __call__(
        self,
        *,
        kubeconfig: Path | None = ...,
        namespace: str | None = ...,
        environment: Mapping[str, str] | None = ...,
    ) -> OperatorProcess: ...


class StartInVain(Protocol):
    """Starts an operator with options and variables; its exit status and what it says."""

    def __call__(self, *arguments: str, **environment: str) -> tuple[int, list[str]]: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make soak` and of `make extended-test`."""
    parser.addoption("--soak", action="store_true", help="run the long form of random plans")
    parser.addoption(
        "--all-examples",
        action="store_true",
        help="try properties on all random cases, not an eighth",
    )


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether to run the long form of a test."""
    return bool(request.config.getoption("--soak"))


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end what tests start, which a shell's background would ignore.

    Event loops, also those of `asyncio.run` in commands that tests call, wait until their
    connections are closed. Programs in Go, API servers above all, take more memory and so a tenth
    less of the processors.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    patch = pytest.MonkeyPatch()
    patch.setattr(asyncio.events, "new_event_loop", PatientLoop)
    patch.setenv("GOGC", GO_GARBAGE_PERCENT)
    config.add_cleanup(patch.undo)
    options = {"--soak": "soak", "--all-examples": "extended"}
    profiles = [name for option, name in options.items() if config.getoption(option)]
    load_profile([*profiles, "tests"][0])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no garbage among what is made while tests are collected: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of folders that need a control plane, or its programs."""
    if item.nodeid.startswith(("tests/cluster/", "tests/manifests/")):
        item.add_marker(pytest.mark.cluster)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with what takes long, so that none of them is alone at the end.

    Without workers the tests keep their order: those of a file follow each other.
    """
    if not config.getoption("--soak"):
        for item in items:
            for mark in item.iter_markers("soak"):
                item.add_marker(pytest.mark.skip(f"{mark.args[0]}: make soak"))
    if hasattr(config, "workerinput"):
        place = places({item.nodeid: _length(item) for item in items})
        items.sort(key=lambda item: place[item.nodeid])


def _length(item: pytest.Item) -> Length:
    """How long a test takes, as its marks say."""
    marked = (length for mark, length in LONG.items() if item.get_closest_marker(mark))
    return next(marked, Length.SHORT)


@pytest.hookimpl(optionalhook=True)  # only where there are workers
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many workers as there are cores: half of the time tests wait."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(optionalhook=True)  # only where there are workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    """Give tests to workers our own way."""
    return Sharing(config, log)


@pytest.hookimpl(tryfirst=True)  # before a worker says that it is ready for tests
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need now: it may take longer than a test may.

    Tests begin when all workers are ready, so it is enough that one of them builds.
    """
    if session.config.option.collectonly or os.environ.get(WORKER, FIRST) != FIRST:
        return
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    names = {name for fixture in NEEDS.keys() & fixtures for name in NEEDS[fixture]}
    capture = session.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled(), suppress(BinaryError):  # its fixture reports it
        Binaries(os.environ, _say).find_all(names)


def _say(line: str) -> None:
    """Print a line where people see it; of a worker they see the errors only."""
    sys.stderr.write(f"{line}\n")  # with its end, for others may print at the same time


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the logs of a failed test's operators, also where their folder is gone since."""
    report = yield
    if report.failed:
        logs = item.stash.get(LOGS, None) or _logs(item.stash.get(OPERATORS, []))
        report.sections += [(f"log of {name}", log) for name, log in logs.items()]
    return report


def _logs(operators: list[OperatorProcess]) -> dict[str, str]:
    """What each has logged, or why nobody can read it: that must not hide a failure."""
    logs = {}
    for operator in operators:
        try:
            logs[operator.name] = operator.log
        except OSError as error:
            logs[operator.name] = f"cannot be read: {error}"
    return logs


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Programs that need no control plane, the same ones for the whole run."""
    with Processes() as processes:
        yield processes


@pytest.fixture(scope="session")
def start_in_vain(processes: Processes) -> StartInVain:
    """Start operators that end at once, for something is wrong."""
    numbers = itertools.count(1)

    def start(*arguments: str, **environment: str) -> tuple[int, list[str]]:
        name = f"operator-{next(numbers)}"
        status, lines = refusal_to_start(processes, name, arguments, environment)
        assert "Traceback" not in "".join(lines)
        return status, lines

    return start


@pytest.fixture(scope="session")
def prometheus_program() -> Path:
    return Binaries(os.environ).find("prometheus")


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The tool of Prometheus that checks rules and metrics."""
    return Binaries(os.environ).find("promtool")


@pytest.fixture(scope="session")
def inference_sim() -> Path:
    """A simulator of vLLM that answers requests."""
    return Binaries(os.environ).find("llm-d-inference-sim")


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd and a kube-apiserver, the same ones for the whole run."""
    with ControlPlane() as control_plane:
        yield control_plane


@pytest.fixture(scope="session")
def crds_installed(control_plane: ControlPlane) -> None:
    """Our custom resources are served."""
    control_plane.install_crds(ROOT / "crds")


@pytest.fixture
def controller_manager(control_plane: ControlPlane) -> Iterator[None]:
    """Namespaces end, and the objects of owners that are gone are deleted."""
    control_plane.start_controller_manager()
    yield
    control_plane.stop_controller_manager()


@pytest.fixture
def deployment_controllers(control_plane: ControlPlane) -> Iterator[None]:
    """Deployments have pods, which nobody runs."""
    control_plane.start_controller_manager(DEPLOYMENTS)
    yield
    control_plane.stop_controller_manager()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Name of a new namespace, for this test alone."""
    with new_namespace(control_plane) as name:
        yield name


@contextmanager
def new_namespace(control_plane: ControlPlane, name: str = "") -> Iterator[str]:
    """Name of a namespace that ends with the context; a new name if none is given."""
    name = name or f"test-{uuid.uuid4().hex[:8]}"
    control_plane.create_namespace(name)
    yield name
    # What stayed would be work for operators that watch all namespaces, and for the controllers of
    # a later test: they try 15 times to serve a Deployment whose namespace is gone, and at most ten
    # Deployments a second.
    gone = [control_plane.api.delete_all(kinds, name) for kinds in ("inferno", "plans")]
    for kinds in WORKLOADS:
        control_plane.api.delete_all(kinds, name)
    control_plane.api.delete_namespace(name)
    if all(gone) and control_plane.api.has_namespace(name):
        control_plane.api.finish_namespace(name)


@pytest.fixture
def operator(
    request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str
) -> Iterator[StartOperator]:
    """Start operators; they end with the test, which shows their logs when it fails."""
    started = request.node.stash.setdefault(OPERATORS, [])
    own_namespace = namespace

    def start(
        *,
        kubeconfig: Path | None = None,
        namespace: str | None = own_namespace,
        environment: Mapping[str, str] | None = None,
    ) -> OperatorProcess:
        process = OperatorProcess(
            control_plane.processes,
            f"operator-{own_namespace}-{len(started) + 1}",
            kubeconfig or control_plane.kubeconfig,
            namespace,
            environment,
            command=None,
        )
        started.append(process)
        process.wait_until_ready()
        return process

    yield start
    try:
        for process in started:
            if process.exit_code is None:
                process.stop()
    finally:
        request.node.stash[LOGS] = _logs(started)
