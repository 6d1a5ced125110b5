"""Every command and its options, as their help shows them."""

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from inferno_operator.cli import inferno as cli
from inferno_operator.cli import kubectl_inferno as kubectl_plugin
from tests.reference.markdown import fenced

WIDTH = 90

PROGRAMS = {"inferno": cli.app, "kubectl inferno": kubectl_plugin.app}


def commands() -> str:
    """A section for each command."""
    return "\n\n".join(
        f"## {context.command_path}\n\n{fenced(context.get_help())}" for context in contexts()
    )


def contexts() -> Iterator[typer.Context]:
    """Every command of every program, in the order of its help."""
    for name, app in PROGRAMS.items():
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        whole = _context(group, name)
        yield whole
        for command in group.list_commands(whole):
            found = group.get_command(whole, command)
            assert isinstance(found, TyperCommand)
            yield _context(found, command, whole)


def _context(
    command: TyperCommand | TyperGroup, name: str, parent: typer.Context | None = None
) -> typer.Context:
    return typer.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
