"""Children that do not outlive their parent, even one that is killed with SIGKILL."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Looked up before any fork: the loader's lock may be held in the moment of one.
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it, others don't


def die_with_parent() -> None:
    """Have the kernel kill this process once the thread that started it is gone.

    Meant as `preexec_fn` of a child started from the main thread. Does nothing but on Linux.
    """
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
