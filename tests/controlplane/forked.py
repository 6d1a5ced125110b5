"""Python programs that begin as copies of this process, which has imported what they need.

Importing takes an operator two seconds of a core, and tests start hundreds of them. The processes
that solve, which it starts itself, import for half a second: they begin as copies of the operator.
"""

import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tests.controlplane.parent_death import die_with_parent

POLL_INTERVAL_S = 0.01
ENDING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
READ_ENVIRONMENT = {"kubernetes.config.kube_config", "kubernetes.aio.config.kube_config"}
"""Modules that take a variable of the environment, KUBECONFIG, when they are imported."""
COPIED = {"anyio.to_process": "process_worker"}
"""Modules that solve, run with `python -m`, and the function that this calls."""


class Forked:
    """A child process with the methods of `subprocess.Popen` that a supervisor needs.

    Parameters
    ----------
    entry
        The module and the function to call, as in an entry point: `package.module:function`.
    arguments, environment
        What the program sees as its command line and variables.
    folder
        Where it runs.
    log
        Where its output is appended.
    imports
        Modules that the function will import.
    """

    def __init__(
        self,
        entry: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        imports: Sequence[str] = (),
    ) -> None:
        module, _, function = entry.partition(":")
        call = getattr(importlib.import_module(module), function)
        for name in imports:
            importlib.import_module(name)
        self._code: int | None = None
        with log.open("ab") as output:
            self.pid = os.fork()
            if self.pid == 0:
                _prepare(arguments, environment, folder, output)
                _end_with(call)

    def poll(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Exit status, once it has ended.

        Raises
        ------
        subprocess.TimeoutExpired
            When it has not after so many seconds.
        """
        started = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - started > timeout:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_INTERVAL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _prepare(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, output: BinaryIO
) -> None:
    """Make a new process look as if it had been started with these arguments and variables."""
    die_with_parent()
    _reset_signals()
    os.chdir(folder)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    _set_variables(environment)
    for name in READ_ENVIRONMENT & sys.modules.keys():
        importlib.reload(sys.modules[name])
    sys.argv = [sys.argv[0], *arguments]
    subprocess.Popen = _Copying  # type: ignore[assignment, misc]


class _Copying(subprocess.Popen[bytes]):
    """Starts a process as always, but where it would run a module of `COPIED`."""

    def __init__(self, args: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - handed on
        python, *rest = args
        module, *arguments = rest[rest.index("-m") + 1 :] if "-m" in rest else [""]
        if python == sys.executable and module in COPIED:
            # It runs in the new process, with its streams, and does not return to replace it.
            options["preexec_fn"] = partial(_solve, module, arguments, options.get("env"))
        super().__init__(args, **options)


def _solve(module: str, arguments: Sequence[str], environment: Mapping[str, str] | None) -> None:
    """Be the program that a module is, as `python -u -m` would be."""
    call = getattr(importlib.import_module(module), COPIED[module])
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # one of them tells the starter that we run
    _reset_signals()
    gc.enable()  # no process is started with it
    if environment is not None:
        _set_variables(environment)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.argv = [module, *arguments]
    _end_with(call)


def _reset_signals() -> None:
    """Handle signals as a new interpreter does."""
    signal.set_wakeup_fd(-1)
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _set_variables(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _end_with(call: object) -> NoReturn:
    """Run a program and end this process as the interpreter would."""
    code = 1
    try:
        assert callable(call)
        call()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - nobody else is left to report it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
