"""The first hour without a copy of the project: every example of README and of all helps.

`python -m tests.first_hour` builds the wheel, installs it by pipx for a user with an empty home,
and runs the examples one after the other in an empty folder. An example may need a cluster, an
engine or a Prometheus; then it must say what is missing in one line.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.reference.shown import ROOT, shown

PROGRAMS = ("inferno", "kubectl-inferno")
TIMEOUT_S = 300.0

NEEDS = {
    "kubectl-inferno console-server ": "a certificate",
    "kubectl-inferno ": "a cluster",
    "inferno operator ": "a cluster",
    "inferno admission ": "a certificate, and a cluster",
    "inferno bench ": "an engine",
    "inferno calibrate ": "what `inferno bench` measured",
    " --prometheus ": "a Prometheus",
    " --scheduler ": "a Dask cluster",
}
"""Parts of commands, and what these need that a fresh machine lacks."""

LEFT_OUT = {
    "kubectl ": "kubectl",
    "helm ": "Helm",
    "make ": "a copy of the project",
    "docker ": "a container engine",
}
"""Parts of commands that are not tried, and what they need."""

SERVERS = ("inferno serve ", "kubectl-inferno console-server ")

COMMAND = re.compile(r"^  ([a-z-]+)(?: {2,}.*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an example; `word` is ok, needs, left out or WRONG."""

    place: str
    command: str
    word: str
    told: str = ""

    def __str__(self) -> str:
        """One line."""
        told = f"  [{self.told}]" if self.told else ""
        return f"{self.word:9}{self.place:31}{self.command}{told}"


def main() -> int:
    """Try everything; the exit status is 1 where an example does not work."""
    with tempfile.TemporaryDirectory() as folder:
        home, place = Path(folder, "home"), Path(folder, "place")
        for each in (home, place):
            each.mkdir()
        wheel = Path(sys.argv[1]) if sys.argv[1:] else build_wheel(Path(folder))
        programs = install(wheel, Path(folder, "pipx"), home)
        print(Outcome("README.md", f"pipx install dist/{wheel.name}", "ok"), flush=True)
        outcomes = []
        for outcome in try_examples(programs, home, place):
            print(outcome, flush=True)
            outcomes.append(outcome)
    counts = {word: sum(o.word == word for o in outcomes) for word in ("ok", "needs", "WRONG")}
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(counts["WRONG"] > 0)


def build_wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path, home: Path) -> Path:
    """Install a wheel by pipx, itself in a folder of its own, and return the folder of programs."""
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", "pipx"], check=True)
    variables = {**_variables(folder / "bin", home), "PIPX_DEFAULT_PYTHON": sys.executable}
    subprocess.run(
        [folder / "bin/pipx", "install", wheel], env=variables, check=True, capture_output=True
    )
    return home / ".local/bin"


def try_examples(programs: Path, home: Path, place: Path) -> Iterator[Outcome]:
    """Run every example in a folder, in the order of README and of the helps."""
    variables = _variables(programs, home)
    for command in shown(ROOT / "README.md"):
        if not command.text.startswith("pipx "):
            yield _attempt("README.md", command.text, place, variables)
    for program in PROGRAMS:
        yield from _try_helps(program, place, variables)


def _try_helps(path: str, place: Path, variables: Mapping[str, str]) -> Iterator[Outcome]:
    """Run the examples of the help of a command and of those below it."""
    help_text = _run(f"{path} --help", place, variables).stdout
    rest, _, examples = help_text.partition("\n  Examples:\n")
    for line in examples.splitlines():
        yield _attempt(path, line.strip(), place, variables)
    for name in COMMAND.findall(rest.partition("\nCommands:\n")[2]):
        yield from _try_helps(f"{path} {name}", place, variables)


def _attempt(place: str, text: str, folder: Path, variables: Mapping[str, str]) -> Outcome:
    command = text.replace("kubectl inferno", "kubectl-inferno")  # which is what kubectl runs
    for part, program in LEFT_OUT.items():
        if part in command:
            return Outcome(place, text, "left out", f"needs {program}")
    need = next((what for part, what in NEEDS.items() if part in command), "")
    if command.startswith(SERVERS):
        return _serve(place, command, need, folder, variables)
    done = _run(command, folder, variables)
    lines = done.stderr.strip().splitlines()
    if done.returncode == 0:
        return Outcome(place, text, "ok", "; ".join(lines[:1]))
    if need and len(lines) == 1:
        return Outcome(place, text, "needs", f"{need}: {lines[0]}")
    return Outcome(place, text, "WRONG", f"{done.returncode}: " + " | ".join(lines))


def _serve(
    place: str, command: str, need: str, folder: Path, variables: Mapping[str, str]
) -> Outcome:
    """Start a server, and end it when it says where it listens."""
    name, *arguments = command.split()
    program = Path(variables["PATH"].partition(os.pathsep)[0], name)
    with subprocess.Popen(
        [program, *arguments],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        server.terminate()
    word = "ok" if line.startswith("listening") else "needs" if need else "WRONG"
    return Outcome(place, command, word, line)


def _run(
    command: str, folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def _variables(programs: Path, home: Path) -> dict[str, str]:
    """The environment of a user who has set nothing; what reaches registries is kept."""
    kept = {k: v for k, v in os.environ.items() if k.lower().startswith(("pip_", "http", "ssl"))}
    path = os.pathsep.join((str(programs), *os.defpath.split(os.pathsep)))
    return {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}


if __name__ == "__main__":
    sys.exit(main())
