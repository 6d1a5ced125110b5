"""Every command and its options, as their help shows them."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import typer
from typer.core import TyperCommand, TyperGroup

from inferno_operator.cli.inferno import main as inferno
from inferno_operator.cli.kubectl import main as kubectl
from tests.reference.markdown import fenced

WIDTH = 90

CONTINUED, DEEPER = " \\", " " * 8
"""The end of a line of a command that goes on, and the blanks before what goes on."""

PROGRAMS = {"inferno": inferno.app, "kubectl inferno": kubectl.app}


PAGES: Mapping[str, tuple[str, ...]] = {
    "plan": ("sample", "plan", "explain", "report"),
    "measure": ("measure", "calibrate", "bench"),
    "replay": ("replay", "study", "floor"),
    "catalogue": ("catalogue",),
    "others": ("generate", "migrate"),
    "programs": ("operator", "admission", "serve"),
    "kubectl": ("optimize", "explain", "generate", "top", "measure"),
    "kubectl-plans": ("plan", "plans", "diff", "approve", "reject"),
    "kubectl-console": ("console", "console-server"),
}
"""Which commands, with those below them, are on which page of `docs/reference/cli`."""


def of_kubectl(page: str) -> bool:
    """Whether a page is about the plugin of kubectl."""
    return page.startswith("kubectl")


def index_of_commands() -> str:
    """The help of each program, and the page of each of its commands."""
    return "\n\n".join(map(_program, PROGRAMS))


def commands_of(page: str) -> str:
    return "\n\n".join(map(_section, contexts_of(page)))


def contexts_of(page: str) -> Iterator[typer.Context]:
    """The commands of a page, in the order of the help."""
    program = "kubectl inferno" if of_kubectl(page) else "inferno"
    for context in contexts():
        name = context.command_path.removeprefix(f"{program} ")
        if context.command_path != name and name.split()[0] in PAGES[page]:
            yield context


PARTS: Mapping[str, Callable[[], str]] = {
    "cli": index_of_commands,
    **{f"cli/{p}": partial(commands_of, p) for p in PAGES},
}
"""What is generated, by page."""


def _program(name: str) -> str:
    (whole,) = (context for context in contexts() if context.command_path == name)
    pages = [page for page in PAGES if of_kubectl(page) == (name != "inferno")]
    links = [f"- [{', '.join(PAGES[page])}](cli/{page}.md)" for page in pages]
    return "\n\n".join((_section(whole), "\n".join(links)))


def _section(context: typer.Context) -> str:
    text = "\n".join(map(_within_width, context.get_help().splitlines()))
    return f"## {context.command_path}\n\n{fenced(text)}"


def _within_width(line: str) -> str:
    """A line of a help; an example that is wider than the page goes on before options and pipes.

    Help has each example on one line, which a terminal breaks where it ends.
    """
    *before, last = [""]
    for part in re.split(r" (?=--|\| )", line) if len(line) > WIDTH else [line]:
        joined = f"{last} {part}" if last else part
        if len(joined) <= WIDTH - len(CONTINUED) or not last:
            last = joined
        else:
            before.append(f"{last}{CONTINUED}")
            last = f"{DEEPER}{part}"
    return "\n".join([*before, last])


def contexts() -> Iterator[typer.Context]:
    """Every command of every program, in the order of its help; not the second name of one."""
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
        elif not found.hidden:
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
