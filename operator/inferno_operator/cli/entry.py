"""The programs as they are installed: Ctrl-C ends them without a traceback from the start on."""
# ruff: noqa: PLC0415 - nothing slow is imported before it is known what Ctrl-C does

import signal
import sys
from types import FrameType

AGAIN_S = 0.01  # seconds between two looks whether an import has ended


def inferno() -> None:
    """Run `inferno`."""
    _let_imports_end()
    from inferno_operator.cli.inferno.main import main

    main()


def kubectl_inferno() -> None:
    """Run `kubectl inferno`."""
    _let_imports_end()
    from inferno_operator.cli.kubectl.main import main

    main()


def kubectl_complete_inferno() -> None:
    """Complete the last argument of `kubectl inferno`; kubectl runs a program of this name."""
    _let_imports_end()
    from inferno_operator.cli.kubectl.main import complete

    sys.stdout.write(complete(sys.argv[1:]))


def _let_imports_end() -> None:
    """Let Ctrl-C wait for the end of an import, unless it is ignored.

    There Python's own handler leaves half a module, or its exception is lost.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if not _is_import(frame):
        signal.default_int_handler(number, frame)
    from threading import Timer, get_ident

    again = Timer(AGAIN_S, signal.pthread_kill, [get_ident(), number])  # it may wait for input
    again.daemon = True
    again.start()


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
