"""What a help shows can be pasted, and kubectl completes the plugin."""

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tests.controlplane import ControlPlane
from tests.reference.commands import contexts

HELPS = {context.command_path: context for context in contexts()}
TERMINAL = 80


def examples(context: typer.Context) -> list[str]:
    """The lines that a user pastes from a help in a narrow terminal."""
    context.terminal_width = context.max_content_width = TERMINAL
    _, _, after = context.get_help().partition("\n  Examples:\n")
    return [line.strip() for line in after.splitlines()]


def of_ours(line: str) -> list[list[str]]:
    """The words of the commands of ours in a line for a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|&><")
    words.whitespace_split = True
    commands = groupby(words, key=lambda word: set(word) <= {*"|&><"})
    parts = [list(part) for between, part in commands if not between]
    return [part for part in parts if part[0] == "inferno" or part[:2] == ["kubectl", "inferno"]]


@pytest.mark.parametrize("path", HELPS)
def test_the_examples_of_a_help_are_pasted_as_they_stand(path: str) -> None:
    lines = examples(HELPS[path])

    assert lines
    for line in lines:
        (words, *_) = of_ours(line)
        names = [name.split() for name in HELPS]
        name = max((n for n in names if n == words[: len(n)]), key=len)
        command = HELPS[" ".join(name)]
        command.command.make_context(name[-1], words[len(name) :], parent=command.parent)


def test_the_examples_name_files_that_other_examples_write() -> None:
    """So that they work where only the wheel is; `python -m tests.first_hour` runs them there."""
    lines = "\n".join(line for context in HELPS.values() for line in examples(context))

    read = set(re.findall(r"(?<![\w/])[\w-]+\.(?:yaml|csv)\b", lines))
    written = set(re.findall(r"(?:> |--keep )([\w-]+\.(?:yaml|csv))", lines))
    assert read - written == {"bench.csv"}  # inferno bench writes it
    assert "samples/" not in lines


@pytest.mark.parametrize("path", [p for p, c in HELPS.items() if isinstance(c.command, TyperGroup)])
def test_the_summaries_of_commands_are_whole_in_a_narrow_terminal(path: str) -> None:
    context = HELPS[path]
    context.terminal_width = context.max_content_width = TERMINAL
    _usage, *lines = context.get_help().splitlines()

    assert [line for line in lines if line.endswith("...")] == []


@pytest.mark.parametrize("path", HELPS)
def test_options_name_what_they_take_and_not_types_of_python(path: str) -> None:
    option = re.compile(r"^  -.*?<[a-z ]+>", re.MULTILINE)

    assert option.findall(HELPS[path].get_help()) == []


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("typed", "found", "otherwise"),
    [
        (["expl"], ["explain"], "ShellCompDirectiveNoFileComp"),
        (["top", "--so"], ["--sort"], "ShellCompDirectiveNoFileComp"),
        (["top", "-o", "y"], ["yaml"], "ShellCompDirectiveNoFileComp"),
        (["top", "--kubeconfig", ""], [], "ShellCompDirectiveDefault"),
        (["explain", "it's", "--opt"], ["--optimizer"], "ShellCompDirectiveNoFileComp"),
    ],
)
def test_kubectl_completes_the_plugin(
    typed: list[str], found: list[str], otherwise: str, control_plane: ControlPlane
) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(control_plane.kubectl_program), "__complete", "inferno", *typed]

    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )

    *lines, directive = done.stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == found
    assert all(line.partition("\t")[2] for line in lines if not line.startswith("yaml"))
    assert otherwise in done.stderr, directive
