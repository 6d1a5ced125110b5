"""How much memory a process had at most."""

from pathlib import Path

KIB_PER_MIB = 1024


def peak_mib(process: int | str = "self") -> int:
    """Return the most memory that a process had since its program began [MiB].

    The `ru_maxrss` of a process also counts what its parent had when it was forked.
    """
    status = Path("/proc", str(process), "status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // KIB_PER_MIB
