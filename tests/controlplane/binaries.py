"""Find the programs of a control plane, or build what is missing."""

import fcntl
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tests.controlplane.errors import BinaryError
from tests.controlplane.kept import cache_folder
from tests.controlplane.parent_death import die_with_parent
from tests.controlplane.programs import PROGRAMS, Program

ERROR_LINES = 15
PROGRESS_S = 15.0
"""Time between two lines about a build [s]."""


def built_path(program: Program, cache: Path) -> Path:
    """Where `build` leaves the program."""
    return cache / "controlplane" / program.module.key / program.name


def build(
    program: Program,
    cache: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    progress_s: float = PROGRESS_S,
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
            _build(go, program, target, environment, say, progress_s)
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
    progress_s: float,
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
        log = Path(folder, "log")
        with log.open("w") as file, _start_go(go, program, partial, environment, file) as building:
            while not _ends_within(building, progress_s):
                elapsed = time.monotonic() - started
                say(f"Building {program.name}: {elapsed:.0f} s, {_describe_progress(log)}")
        if building.returncode:
            said = [line for line in log.read_text().splitlines() if " " in line]
            last = "\n".join(said[-ERROR_LINES:])
            raise BinaryError(f"building {program.name} failed; Go's last lines:\n{last}")
        partial.rename(target)
    say(f"Built {program.name} in {time.monotonic() - started:.0f} s")


def _start_go(
    go: str, program: Program, output: Path, environment: Mapping[str, str], log: TextIO
) -> subprocess.Popen[bytes]:
    """Start Go, which logs a line for each module that it loads and each package it compiles."""
    return subprocess.Popen(
        [
            *(go, "build", "-v", "-C", program.module.folder),
            *("-mod=readonly", "-trimpath", "-ldflags", program.linker_flags),
            *("-o", output, program.package),
        ],
        env={**environment, "GOWORK": "off", "CGO_ENABLED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes one system call, takes no lock
    )


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _describe_progress(log: Path) -> str:
    lines = log.read_text().splitlines()
    packages = [line for line in lines if " " not in line]
    if not packages:
        return f"{len(lines)} modules loaded"
    return f"{len(packages)} packages compiled, now {packages[-1]}"


OLDEST = {"kubectl": (1, 31), "prometheus": (3, 0), "promtool": (3, 0)}
"""The oldest release that tests can use of what people may have on PATH: major and minor."""

VERSION = re.compile(r'(?:"gitVersion": "v|, version )(\d+)\.(\d+)')
VERSION_OPTIONS = {"kubectl": ("version", "--client", "--output=json")}
VERSION_TIMEOUT_S = 30
BUILDS_AT_ONCE = 2


def _print_now(line: str) -> None:
    print(line, flush=True)  # a log should show it before the minutes that it tells about


@dataclass(frozen=True)
class Binaries:
    """Finds programs: first in KUBEBUILDER_ASSETS, then on PATH, else built from source.

    Attributes
    ----------
    environment
        Variables that tell where to look: KUBEBUILDER_ASSETS, PATH, XDG_CACHE_HOME, HOME.
    say
        Told what takes long, a line at a time.
    progress_s
        Time between two lines about a build [s].
    """

    environment: Mapping[str, str]
    say: Callable[[str], None] = _print_now
    progress_s: float = PROGRESS_S

    def find(self, name: str) -> Path:
        """Path of a program.

        Raises
        ------
        BinaryError
            When it is nowhere, and can't be built.
        """
        found = self._in_assets(name) or self._on_path(name)
        cache = cache_folder(self.environment)
        if found:
            return found
        return build(PROGRAMS[name], cache, self.environment, self.say, self.progress_s)

    def find_all(self, names: Iterable[str]) -> dict[str, Path]:
        """Paths of several programs by name; what is missing is built side by side.

        Raises
        ------
        BinaryError
            When one of them is nowhere, and can't be built.
        """
        wanted = sorted(set(names))
        with ThreadPoolExecutor(BUILDS_AT_ONCE) as threads:
            return dict(zip(wanted, threads.map(self.find, wanted), strict=True))

    def origin(self, name: str) -> str:
        """Where `find` takes a program from, in words."""
        if self._in_assets(name):
            return "KUBEBUILDER_ASSETS"
        return "PATH" if self._on_path(name) else "built from source"

    def _in_assets(self, name: str) -> Path | None:
        folder = self.environment.get("KUBEBUILDER_ASSETS")
        return _executable(name, folder) if folder else None

    def _on_path(self, name: str) -> Path | None:
        found = _executable(name, self.environment.get("PATH", ""))
        if found and name in OLDEST and not _suits(found, self.environment):
            return None
        return found


def _executable(name: str, search_path: str) -> Path | None:
    found = shutil.which(name, path=search_path)
    return Path(found).absolute() if found else None


def _suits(program: Path, environment: Mapping[str, str]) -> bool:
    """Whether a program is new enough."""
    version = _version(program, environment)
    return version is not None and version >= OLDEST[program.name]


def _version(program: Path, environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Major and minor version of a program; vendors add words of their own behind the numbers."""
    try:
        answer = subprocess.run(
            [program, *VERSION_OPTIONS.get(program.name, ("--version",))],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # not a program that we understand
    numbers = VERSION.search(answer.stdout)
    return (int(numbers[1]), int(numbers[2])) if numbers else None
