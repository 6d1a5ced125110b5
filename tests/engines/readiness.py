"""Waiting until a program that serves HTTP is ready."""

import httpx

from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until


def wait_until_ready(processes: Processes, name: str, client: httpx.Client, path: str) -> None:
    """Wait until a process answers `path` with success.

    Raises
    ------
    ProgramError
        The process has ended.
    WaitTimeoutError
        It is not ready in time.
    """

    def answer() -> str:
        processes.require_running(name)
        try:
            reply = client.get(path)
        except httpx.TransportError as error:
            return repr(error)
        return "ready" if reply.is_success else f"{reply.status_code}: {reply.text}"

    wait_until(answer, lambda said: said == "ready", f"{name} ready")
