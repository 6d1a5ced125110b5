"""Completion of `kubectl inferno`, in the words that kubectl expects of its plugins.

kubectl runs `kubectl_complete-inferno` with the arguments that are typed, of which the last may be
incomplete. It expects a completion with its description on each line, and then what the shell
does otherwise [https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins].
"""

import os
import shlex
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO

from typer.completion import completion_init  # type: ignore[attr-defined]  # it has no other

from inferno_operator.cli.kubectl.main import app

FILES, NO_FILES = ":0\n", ":4\n"
"""The last line: whether the shell completes the names of files, where nothing else is known."""


def complete(arguments: Sequence[str]) -> str:
    """Return the completions of the last argument.

    They are those that typer has for fish, whose lines are those of kubectl.
    """
    *typed, last = arguments or [""]
    asked = {
        "_INFERNO_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COLUMNS": "1000",  # a description is one line
        "_TYPER_COMPLETE_ARGS": f"inferno {shlex.join(typed)} {last}",
    }
    os.environ.update(asked)
    completion_init()
    printed = StringIO()
    with suppress(SystemExit), redirect_stdout(printed):
        app([], prog_name="inferno")
    lines = [line for line in printed.getvalue().splitlines() if line]
    return "".join(f"{line}\n" for line in lines) + (NO_FILES if lines else FILES)
