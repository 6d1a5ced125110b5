"""The program that owns the control plane's processes and folder, and ends with its owner.

It reads requests from stdin and answers each on stdout, one JSON object a line. When stdin closes,
and it does whatever ended the owner, it kills the processes and removes the folder. It runs in a
session of its own, so Ctrl-C in the terminal reaches the owner alone. `processes.py` talks to it.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from tests.controlplane.forked import ENDING_SIGNALS, Forked
from tests.controlplane.parent_death import die_with_parent

FOLDER_PREFIX = "inferno-control-plane-"


class Supervisor:
    """Child processes by name, each with a log in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._record: TextIO | None = None  # held open, and so locked, once detached

    @property
    def detached(self) -> bool:
        """Whether the processes stay when the owner is gone."""
        return self._record is not None

    def start(self, name: str, command: list[str], environment: dict[str, str] | None) -> int:
        """Start a process in the folder, its output appended to `<name>.log`; its pid."""
        with (self._folder / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - there is only one thread here
            )
        self._children[name] = child
        return child.pid

    def fork(
        self,
        name: str,
        entry: str,
        arguments: list[str],
        environment: dict[str, str],
        imports: list[str],
    ) -> int:
        """Start a Python program as a copy of this process; its pid."""
        log = self._folder / f"{name}.log"
        child = Forked(entry, arguments, environment, self._folder, log, imports)
        self._children[name] = child
        return child.pid

    def exit_code(self, name: str) -> int | None:
        """Exit status of a process, negative for a signal; None while it runs."""
        return self._children[name].poll()

    def stop(self, name: str, signal_number: int, patience_s: float) -> int:
        """Send a signal, wait, kill when patience is at its end; the exit status."""
        child = self._children[name]
        child.send_signal(signal_number)
        try:
            return child.wait(patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def detach(self, record: str, contents: dict[str, str]) -> None:
        """Outlive the owner until a signal comes; `record` says where, and is locked meanwhile."""
        file = Path(record).open("a+", encoding="utf-8")  # noqa: SIM115 - open for as long as we live
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        json.dump({"pid": os.getpid(), "folder": str(self._folder), **contents}, file)
        file.flush()
        self._record = file

    def end(self) -> None:
        """Kill every process; nothing they hold is worth a graceful end."""
        for child in reversed(self._children.values()):
            child.kill()
        for child in self._children.values():
            child.wait()


def answer_requests(supervisor: Supervisor, requests: TextIO, replies: TextIO) -> None:
    """Answer one request a line until the owner closes its end."""
    methods: dict[str, Callable[..., Any]] = {
        "start": supervisor.start,
        "fork": supervisor.fork,
        "exit_code": supervisor.exit_code,
        "stop": supervisor.stop,
        "detach": supervisor.detach,
    }
    for line in requests:
        request = json.loads(line)
        try:
            reply = {"result": methods[request["method"]](**request["arguments"])}
        except OSError as error:
            reply = {"error": str(error)}
        try:
            print(json.dumps(reply), file=replies, flush=True)
        except BrokenPipeError:  # the owner ended meanwhile
            discard(replies)
            return


def discard(replies: TextIO) -> None:
    """Let what is left to write go nowhere: it would fail again at the end of this process."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), replies.fileno())


def wait_for_a_signal() -> None:
    """Let go of the owner's terminal and wait for the signal handler to end this process."""
    with Path(os.devnull).open("r+b") as nothing:
        for descriptor in (0, 1, 2):
            os.dup2(nothing.fileno(), descriptor)
    while True:
        signal.pause()


def set_handlers(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    """Handle every signal that asks a process to end in the same way."""
    for number in ENDING_SIGNALS:
        signal.signal(number, handler)


def leave(*_: object) -> None:
    """End by the usual way out, which cleans up."""
    sys.exit(0)


def main() -> None:
    """Serve one owner, then clean up."""
    set_handlers(leave)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        supervisor = Supervisor(Path(folder))
        try:
            print(json.dumps({"result": folder}), flush=True)
            answer_requests(supervisor, sys.stdin, sys.stdout)
            if supervisor.detached:
                wait_for_a_signal()
        finally:
            set_handlers(signal.SIG_IGN)
            supervisor.end()


if __name__ == "__main__":
    main()
