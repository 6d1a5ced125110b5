"""Commands that the documentation shows, and the output beside them."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
CONTINUED = "\0"
ELIDED = "..."
"""A line that stands for any number of lines."""

OF_THE_SHELL = frozenset("|<>;&$`")
"""Characters of a command that only a shell understands."""

OFFLINE = (
    *("inferno calibrate ", "inferno catalogue ", "inferno explain ", "inferno plan "),
    *("inferno size ", "inferno sample "),
    *("inferno floor ", "inferno migrate ", "inferno replay ", "inferno --version"),
)
"""Commands that need nothing but the program."""

VARYING = (
    (re.compile(r"\b\d+\.\d+ s\b"), "# s"),  # how long it took
    (re.compile(r"\b(\d+[dhms])+\b(?= *$| ago)"), "#s"),  # ages, the last column of kubectl
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:]+Z\b"), "#"),
    (re.compile(r"(\d+\.\d{6})\d+"), r"\1"),  # the last digits are the processor's
    (re.compile(r" {2,}"), "  "),  # columns are as wide as what varies
    (re.compile(r" +$"), ""),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A command on a page, and what is shown below it; `source` is how the page has both."""

    page: Path
    text: str
    output: str = ""
    source: str = ""

    def __str__(self) -> str:
        """Page and command."""
        return f"{self.page.relative_to(ROOT)}: {self.text}"

    @property
    def offline(self) -> bool:
        """Whether it runs anywhere."""
        is_alone = "--prometheus" not in self.text and not self.on_cluster
        return is_alone and self.text.startswith(OFFLINE)

    @property
    def on_cluster(self) -> bool:
        """Whether it needs a cluster, and nothing else."""
        return self.text.startswith(("kubectl ", "inferno sample | kubectl "))

    def fits(self, printed: str) -> bool:
        """Whether this is what the page shows, but for times and what it leaves out."""
        wanted = "".join(
            r"(?:.*\n)*" if line.strip() == ELIDED else re.escape(f"{line}\n")
            for line in normal(self.output)
        )
        return re.fullmatch(wanted, "".join(f"{line}\n" for line in normal(printed))) is not None


def every() -> list[Shown]:
    """Every command of every page."""
    return [command for page in pages() for command in shown(page)]


def pages() -> list[Path]:
    """Every page that people read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> Iterator[Shown]:
    """The commands of a page, in their order."""
    for indentation, language, indented in BLOCK.findall(page.read_text(encoding="utf-8")):
        block = re.sub(f"^{indentation}", "", indented, flags=re.MULTILINE)
        if language in ("console", "shell"):
            yield from _session(page, block)
        elif language in ("bash", "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            yield from (
                Shown(page, text) for line in lines if (text := line.partition(" #")[0].strip())
            )


def _session(page: Path, block: str) -> Iterator[Shown]:
    """Commands after a prompt, each with what follows it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", CONTINUED).partition("\n")
        text = re.sub(r"\s+#\s.*", "", command.replace(CONTINUED, " ")).strip()
        yield Shown(page, re.sub(r" {2,}", " ", text), output.strip("\n"), part)


def normal(text: str) -> list[str]:
    """Lines without what differs each time."""
    lines = text.strip("\n").splitlines()
    for pattern, replacement in VARYING:
        lines = [pattern.sub(replacement, line) for line in lines]
    return lines


def variables() -> dict[str, str]:
    """The environment of a reader who has installed the program."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("INFERNO_", "COLUMNS"))}
    return {**kept, "PATH": os.pathsep.join((str(Path(sys.executable).parent), kept["PATH"]))}


@cache
def find_folder(page: Path) -> Path:
    """Where a reader runs the commands of a page: the project's folder, or a copy to write into.

    It is a copy where the page has commands that write files, and has these files.
    """
    writing = [c for c in shown(page) if c.offline and " > " in c.text]
    if not writing:
        return ROOT
    folder = Path(tempfile.mkdtemp(prefix="reader-"))
    atexit.register(shutil.rmtree, folder)
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    for command in writing:
        run_in(folder, command.text).check_returncode()
    return folder


def run(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, in the project's folder."""
    return run_in(ROOT, text, **environment)


def run_in(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, in a folder."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env={**variables(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def with_output(page: str, command: Shown, printed: str) -> str:
    """The text of a page with another output of a command."""
    head = command.source.removesuffix("\n").removesuffix(command.output.rstrip())
    trailing = "\n" * (len(command.source) - len(command.source.rstrip("\n")))
    anew = f"{head.rstrip()}\n{printed.strip()}{trailing}"
    return page.replace(f"$ {command.source}", f"$ {anew}", 1)
