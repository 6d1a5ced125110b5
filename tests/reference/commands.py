"""Every command and its options, as their help shows them."""

from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from inferno_operator.cli.inferno import main as inferno
from inferno_operator.cli.kubectl import main as kubectl
from tests.reference.markdown import fenced

WIDTH = 90

PROGRAMS = {"inferno": inferno.app, "kubectl inferno": kubectl.app}


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
        yield from _nested(group, _context(group, name))


def _nested(group: TyperGroup, whole: typer.Context) -> Iterator[typer.Context]:
    yield whole
    for name in group.list_commands(whole):
        found = group.get_command(whole, name)
        assert isinstance(found, TyperCommand | TyperGroup)
        inner = _context(found, name, whole)
        if isinstance(found, TyperGroup):
            yield from _nested(found, inner)
        else:
            yield inner


def _context(
    command: TyperCommand | TyperGroup, name: str, parent: typer.Context | None = None
) -> typer.Context:
    return typer.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
