"""Build a program from its pinned Go module, once, into the user's cache."""

import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane.errors import BinaryError
from tests.controlplane.parent_death import die_with_parent
from tests.controlplane.programs import Program

ERROR_LINES = 15


def built_path(program: Program, cache: Path) -> Path:
    """Where `build` leaves the program."""
    return cache / "controlplane" / program.module.key / program.name


def build(
    program: Program, cache: Path, environment: Mapping[str, str], say: Callable[[str], None]
) -> Path:
    """Build the program unless that was done before, and return its path.

    It appears under its name only when complete. Of several runs at once one builds, and the
    others wait for it.

    Raises
    ------
    BinaryError
        When there is no Go, or it fails.
    """
    target = built_path(program, cache)
    if target.exists():
        return target
    go = _go(program, environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(program, target.parent, say):
        if not target.exists():
            _build(go, program, target, environment, say)
    return target


def _go(program: Program, environment: Mapping[str, str]) -> str:
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise BinaryError(
            f"{program.name} is neither in KUBEBUILDER_ASSETS nor on PATH, and there is no Go to "
            "build it: install Go 1.25.7 or newer (https://go.dev/dl), or set KUBEBUILDER_ASSETS "
            f"to a folder with {program.name}"
        )
    return go


@contextmanager
def _only_one(program: Program, folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    with (folder / f".{program.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another run is building {program.name}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(
    go: str,
    program: Program,
    target: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    partial_prefix = f".building-{program.name}-"
    for leftover in target.parent.glob(f"{partial_prefix}*"):  # of a build that was killed
        shutil.rmtree(leftover)
    say(
        f"Building {program.name} {program.module.version} from its Go module, once, into "
        f"{target.parent} (neither in KUBEBUILDER_ASSETS nor on PATH): up to {program.build_time}"
    )
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=partial_prefix) as folder:
        partial = Path(folder, program.name)
        _run_go(go, program, partial, environment)
        partial.rename(target)
    say(f"Built {program.name} in {time.monotonic() - started:.0f} s")


def _run_go(go: str, program: Program, output: Path, environment: Mapping[str, str]) -> None:
    completed = subprocess.run(
        [
            *(go, "build", "-C", program.module.folder),
            *("-mod=readonly", "-trimpath", "-ldflags", program.linker_flags),
            *("-o", output, program.package),
        ],
        env={**environment, "GOWORK": "off", "CGO_ENABLED": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=die_with_parent,
    )
    if completed.returncode:
        said = "\n".join(completed.stderr.splitlines()[-ERROR_LINES:])
        raise BinaryError(f"building {program.name} failed; Go's last lines:\n{said}")
