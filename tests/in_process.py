"""Command lines called where the tests are: the same code, without an interpreter to start."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest


def called(
    main: Callable[[], None],
    arguments: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Call the function of an entry point as its script does, and take what it prints.

    What reads standard input, is sent signals or looks at a terminal needs a process of its own.

    Parameters
    ----------
    main
        The function.
    arguments
        Of its command line, without the name of the program.
    folder
        Where it runs; None: where the tests do.
    environment
        Its variables; None: those of the tests.
    """
    command = [str(argument) for argument in arguments]
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", [sys.argv[0], *command])
        patch.chdir(folder or Path.cwd())
        for name in os.environ.keys() - (environment or os.environ).keys():
            patch.delenv(name)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        status = _status(main)
    printed = []
    for stream in streams:
        stream.flush()
        written = stream.detach()
        assert isinstance(written, io.BytesIO)
        printed.append(written.getvalue())
    return subprocess.CompletedProcess(command, status, *printed)


def _status(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
