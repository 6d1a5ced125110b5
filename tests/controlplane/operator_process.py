"""The operator as a process of its own, the way a person starts it."""

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.controlplane.errors import ProgramError
from tests.controlplane.processes import Processes
from tests.controlplane.waiting import wait_until

ENTRY = "inferno_operator.cli.inferno.main:main"
IMPORTS = ("inferno_operator.main",)
COMMAND = (sys.executable, "-m", "inferno_operator", "operator")
READY = "operator ready"
PLAN_KEY = Path(__file__).with_name("plan.key")
"""The key of all operators of the tests: they know each other's Plans."""
HEALTH = re.compile(r"health and metrics on (http://[\w.:]+)")
# The variables of the person who runs us must not decide what the operator does, nor those of a
# pod that we may be in: they'd lead it to another cluster.
FOREIGN_PREFIXES = ("INFERNO_", "KUBERNETES_", "KUBECONFIG")


def refusal_to_start(
    processes: Processes, name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[int, list[str]]:
    """Exit status and lines of an operator that ends by itself, for it can't start.

    The variables are those given here, and those of the tests that are none of an operator's.
    """
    variables = own_variables() | dict(environment)
    processes.fork(name, ENTRY, ["operator", *arguments], variables, IMPORTS)
    code = wait_until(
        lambda: processes.exit_code(name),
        lambda code: code is not None,
        "the end of the operator",
    )
    assert code is not None
    return code, processes.log_path(name).read_text().splitlines()


def own_variables() -> dict[str, str]:
    """The variables of the tests that are none of an operator's."""
    return {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN_PREFIXES)}


class OperatorProcess:
    """A running `inferno operator`; it ends with the control plane that it works on.

    Parameters
    ----------
    processes
        Of the control plane.
    name
        Of the process and its log; not that of another running process.
    kubeconfig
        Whose rights it has.
    namespace
        What it watches (comma separated); None: all namespaces.
    environment
        More variables for it.
    command
        What to start, up to the options; None: a copy of a process that has imported all that
        an operator needs, which takes a tenth of the time.
    """

    def __init__(
        self,
        processes: Processes,
        name: str,
        kubeconfig: Path,
        namespace: str | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str | Path] | None = COMMAND,
    ) -> None:
        self._processes = processes
        self.name = name
        variables = own_variables() | {"KUBECONFIG": str(kubeconfig), "PYTHONUNBUFFERED": "1"}
        if namespace is not None:
            variables["INFERNO_NAMESPACE"] = namespace
        variables["INFERNO_PLAN_KEY_FILE"] = str(PLAN_KEY)
        variables |= environment or {}
        options = ["--health-port=0"]  # any that is free
        if command is None:
            self.pid = processes.fork(name, ENTRY, ["operator", *options], variables, IMPORTS)
        else:
            self.pid = processes.start(name, [*command, *options], variables)

    @property
    def log_path(self) -> Path:
        return self._processes.log_path(self.name)

    @property
    def log(self) -> str:
        """Everything it logged so far."""
        return self.log_path.read_text(errors="replace")

    @property
    def log_tail(self) -> str:
        """The last lines of its log."""
        return self._processes.log_tail(self.name)

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._processes.exit_code(self.name)

    @property
    def health_url(self) -> str:
        """Where its probes and metrics are, on a port that it found itself."""
        return str(HEALTH.findall(self.log)[-1])

    def check_running(self) -> None:
        """Raise a ProgramError when it has ended."""
        if self.exit_code is not None:
            raise ProgramError(f"the operator ended with status {self.exit_code}")

    def wait_until_ready(self) -> None:
        def log_of_the_living() -> str:
            self.check_running()
            return self.log

        wait_until(log_of_the_living, lambda log: READY in log, "the operator ready")

    def stop(self) -> int:
        """Ask it to end, wait, and return its exit status; killed when it takes too long."""
        return self._processes.stop(self.name, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._processes.stop(self.name, signal.SIGKILL)
