"""Processes and a folder that end with us, whatever ends us."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.controlplane.errors import ProgramError
from tests.controlplane.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
LOG_TAIL_LINES = 20


class Processes:
    """Named child processes and a temporary folder, owned by a supervisor process.

    The supervisor kills the processes and removes the folder on `close`, and also when this
    process ends without it: by an exception, Ctrl-C, SIGTERM or SIGKILL.
    """

    def __init__(self) -> None:
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.controlplane.supervisor"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self.folder = Path(self._receive())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def supervisor_pid(self) -> int:
        """Process id of the supervisor, which leads the session of all the processes."""
        return self._supervisor.pid

    def start(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None
    ) -> int:
        """Start a process in the folder and return its pid; `environment` None: as ours."""
        arguments = [str(argument) for argument in command]
        variables = None if environment is None else dict(environment)
        pid: int = self._call("start", name=name, command=arguments, environment=variables)
        return pid

    def fork(
        self,
        name: str,
        entry: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        imports: Sequence[str] = (),
    ) -> int:
        """Start `package.module:function` where its imports have been done; its pid."""
        program = {"entry": entry, "imports": list(imports), "arguments": list(arguments)}
        pid: int = self._call("fork", name=name, environment=dict(environment), **program)
        return pid

    def exit_code(self, name: str) -> int | None:
        """Exit status of a process, negative for a signal; None while it runs."""
        code: int | None = self._call("exit_code", name=name)
        return code

    def require_running(self, name: str) -> None:
        """Check that a process runs.

        Raises
        ------
        ProgramError
            It has ended; the message has the last lines of its log.
        """
        code = self.exit_code(name)
        if code is not None:
            tail = self.log_tail(name)
            raise ProgramError(f"{name} ended with status {code}; its last lines:\n{tail}")

    def stop(
        self,
        name: str,
        signal_number: signal.Signals = signal.SIGTERM,
    ) -> int:
        """Send a signal, wait, kill when patience is at its end; the exit status."""
        code: int = self._call(
            "stop", name=name, signal_number=signal_number, patience_s=PATIENCE_S
        )
        return code

    def log_path(self, name: str) -> Path:
        """Where a process of this name logs; the log of a restarted one goes on."""
        return self.folder / f"{name}.log"

    def log_tail(self, name: str) -> str:
        """Return the last lines of a process's log."""
        lines = self.log_path(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def detach(self, record: Path, contents: Mapping[str, str]) -> None:
        """Let everything outlive us; `record` says where it is, for `kept.py`."""
        record.parent.mkdir(parents=True, exist_ok=True)
        self._call("detach", record=str(record), contents=dict(contents))
        self._supervisor.returncode = 0  # not ours to wait for any more

    def close(self) -> None:
        """End the processes and remove the folder, unless detached."""
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        if self._supervisor.wait() != 0:
            shutil.rmtree(
                self.folder, ignore_errors=True
            )  # the supervisor was killed before it could

    def _call(self, method: str, **arguments: Any) -> Any:  # noqa: ANN401 - JSON
        request = json.dumps({"method": method, "arguments": arguments})
        try:
            print(request, file=self._supervisor.stdin, flush=True)
        except BrokenPipeError as error:
            raise ProgramError("the control plane's supervisor is gone") from error
        return self._receive()

    def _receive(self) -> Any:  # noqa: ANN401 - JSON
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if not line:
            raise ProgramError("the control plane's supervisor is gone")
        reply = json.loads(line)
        if "error" in reply:
            raise ProgramError(reply["error"])
        return reply["result"]
