"""A control plane that was left running: is there one, and stop it.

Its supervisor holds a lock on the record for as long as it lives, so a record that is left over
from a crash, or a process id that was given to another process since, can't mislead.
"""

import fcntl
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.controlplane.waiting import wait_until


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's programs cache: `$XDG_CACHE_HOME` or `~/.cache`; our part of it."""
    home = environment.get("HOME") or Path.home()
    return Path(environment.get("XDG_CACHE_HOME") or Path(home, ".cache"), "inferno-operator")


def running(record: Path) -> dict[str, str] | None:
    """Contents of the record of a control plane that was left running; None: there is none."""
    try:
        with record.open(encoding="utf-8") as file:
            return json.load(file) if _is_locked(file.fileno()) else None
    except FileNotFoundError:
        return None


def stop(record: Path) -> bool:
    """End what was left running, and wait until it's gone; whether there was any."""
    contents = running(record)
    if contents is None:
        return False
    os.kill(int(contents["pid"]), signal.SIGTERM)
    wait_until(lambda: running(record), lambda left: left is None, "its end")
    record.unlink(missing_ok=True)
    return True


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
