"""Programs that begin as copies of their supervisor."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from anyio import BrokenWorkerProcess, to_process

from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until

HERE = "tests.unit.controlplane.test_forked"


def shows_itself() -> None:
    """Print what a program can see of how it was started."""
    print(sys.argv[1:], os.environ["COLOUR"], Path.cwd(), flush=True)
    print("trouble", file=sys.stderr, flush=True)
    sys.exit(7)


def waits() -> None:
    print("waiting", flush=True)
    signal.pause()


def starts_a_solver() -> None:
    with Path(os.devnull).open():  # it is not for the solver
        anyio.run(_start_a_solver)


async def _start_a_solver() -> None:
    """Print what a process of anyio sees of itself; then let it end."""
    for call in (Path("/proc/self/cmdline").read_text, os.getppid, open_files):
        print(await to_process.run_sync(call), flush=True)
    try:
        await to_process.run_sync(signal.raise_signal, signal.SIGTERM)
    except BrokenWorkerProcess:
        print(os.getpid(), "alive", flush=True)


def open_files() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_it_has_arguments_variables_folder_log_and_status_of_its_own() -> None:
    with Processes() as processes:
        processes.fork("one", f"{HERE}:shows_itself", ["a", "b"], {"COLOUR": "blue"})
        code = wait_until(lambda: processes.exit_code("one"), lambda c: c is not None, "its end")
        log = processes.log_path("one").read_text()
        folder = processes.folder

    assert code == 7
    assert sorted(log.splitlines()) == sorted([f"['a', 'b'] blue {folder}", "trouble"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_as_it_would_end_any_program(number: signal.Signals) -> None:
    with Processes() as processes:
        processes.fork("one", f"{HERE}:waits", [], {})
        wait_until(processes.log_path("one").read_text, bool, "its start")

        assert processes.stop("one", number) == -number


def test_it_ends_when_its_supervisor_is_killed() -> None:
    with Processes() as processes:
        pid = processes.fork("one", f"{HERE}:waits", [], {})
        wait_until(processes.log_path("one").read_text, bool, "its start")

        os.kill(processes.supervisor_pid, signal.SIGKILL)

        assert not wait_until(
            Path(f"/proc/{pid}").exists, lambda there: not there, "the end of both"
        )


def test_a_solver_that_it_starts_is_a_copy_too_and_otherwise_as_usual() -> None:
    with Processes() as processes:
        pid = processes.fork("one", f"{HERE}:starts_a_solver", [], {})
        wait_until(lambda: processes.exit_code("one"), lambda c: c is not None, "its end")
        lines = processes.log_path("one").read_text().splitlines()
        supervisor = Path(f"/proc/{processes.supervisor_pid}/cmdline").read_text()

    # asyncio warns if it closes the transport of a process before the watcher sees its end.
    command, parent, files, alive = (
        line for line in lines if not line.startswith("Unknown child process")
    )
    assert command == supervisor
    assert parent == str(pid)
    assert files == str(anyio.run(to_process.run_sync, open_files))
    assert alive == f"{pid} alive"
