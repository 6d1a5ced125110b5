"""The programs as they are installed: Ctrl-C ends them without a traceback from the start on."""
# ruff: noqa: PLC0415 - each program imports its modules where Ctrl-C is quiet

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def inferno() -> None:
    """Run `inferno`."""
    with _interrupts_kill():
        from inferno_operator.cli.inferno.main import main
    main()


def kubectl_inferno() -> None:
    """Run `kubectl inferno`."""
    with _interrupts_kill():
        from inferno_operator.cli.kubectl.main import main
    main()


def kubectl_complete_inferno() -> None:
    """Complete the last argument of `kubectl inferno`; kubectl runs a program of this name."""
    with _interrupts_kill():
        from inferno_operator.cli.kubectl.completion import complete
    sys.stdout.write(complete(sys.argv[1:]))


@contextmanager
def _interrupts_kill() -> Iterator[None]:
    """Let Ctrl-C end this process at once, unless it is ignored.

    Python's own handler raises an exception, which prints a traceback, or is lost where a module
    is being imported.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
