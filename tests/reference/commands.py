"""Every command and its options, as their help shows them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import typer
from typer.core import TyperCommand, TyperGroup

from inferno_operator.cli.inferno import main as inferno
from inferno_operator.cli.kubectl import main as kubectl
from tests.reference.markdown import code, fenced, table

WIDTH = 90

OPTION = re.compile(r"^  (-\S.*\n(?: {6,}\S.*\n)*)", re.MULTILINE)
"""An option in a help, with the lines that explain it."""

OF_A_VARIABLE = re.compile(r"\[INFERNO_\w+\]$")
"""The end of an option of the operator, which stands for a variable."""

MANY = 3
"""Commands that have an option: its explanation stands once, on the page of all commands."""

CONTINUED, DEEPER = " \\", " " * 8
"""The end of a line of a command that goes on, and the blanks before what goes on."""

PROGRAMS = {"inferno": inferno.app, "kubectl inferno": kubectl.app}


PAGES: Mapping[str, tuple[str, ...]] = {
    "plan": ("size", "sample", "plan", "explain", "report"),
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
    """The help of each program, the page of each of its commands, and what many commands have."""
    shared = table(("option", "meaning"), _shared_rows())
    return "\n\n".join((*map(_program, PROGRAMS), "### Options of many commands", shared))


def _shared_rows() -> list[tuple[str, str]]:
    """The options of many commands, each once, and what they mean in which program."""
    helps = {
        program: " ".join(
            word
            for context in contexts()
            if context.command_path.startswith(program)
            for word in context.get_help().split()
        )
        for program in PROGRAMS
    }
    meanings: dict[str, dict[str, str]] = {}
    for text in sorted(common_options(), key=lambda text: text.strip("-")):
        names, meaning = _option(text)
        for program, shown in helps.items():
            if text in shown:
                meanings.setdefault(names, {})[program] = meaning
    return [(names, _join(found)) for names, found in meanings.items()]


def _join(meanings: Mapping[str, str]) -> str:
    """What an option means; where programs differ, in each."""
    if len({*meanings.values()}) == 1:
        return next(iter(meanings.values()))
    return " ".join(f"{code(program)}: {meaning}" for program, meaning in meanings.items())


@cache
def common_options() -> frozenset[str]:
    """Options with their explanations, each in one line, that many commands have."""
    found = Counter(
        " ".join(text.split())
        for context in contexts()
        if context.parent
        for text in OPTION.findall(f"{context.get_help()}\n")
    )
    return frozenset(text for text, count in found.items() if count >= MANY)


def _option(text: str) -> tuple[str, str]:
    """The names of an option with its value, and what it means."""
    names = re.match(r"(?:-\w, )?--[\w-]+(?: (?:[A-Z]+|<\S+>)(?= ))?", text)
    assert names is not None
    return code(names[0]), text[names.end() :].strip()


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
    told = f"{context.get_help()}\n"
    left_out: dict[str, list[str]] = {}
    for text in OPTION.findall(told) if context.parent else ():
        if page := _explained_on(" ".join(text.split())):
            told = told.replace(f"  {text}", "", 1)
            names = re.match(r"-[\w-]+(?: / --[\w-]+)?", text)
            left_out.setdefault(page, []).extend(map(code, names[0].split(" / ")) if names else ())
    text = "\n".join(map(_within_width, told.replace("Options:\n\n", "").splitlines()))
    also = [f"[Also](../{page}) {', '.join(names)}." for page, names in left_out.items()]
    return "\n\n".join((f"## {context.command_path}", fenced(text), *also))


def _explained_on(option: str) -> str:
    """Return the place that explains an option of many commands or of the operator; or ""."""
    if option in common_options():
        return "cli.md#options-of-many-commands"
    return "environment.md#of-the-operator" if OF_A_VARIABLE.search(option) else ""


def _within_width(line: str) -> str:
    """A line of a help; a wide example goes on before options, pipes and quotes.

    Help has each example on one line, which a terminal breaks where it ends.
    """
    *before, last = [""]
    for part in re.split(r" (?=--|\| |> |&& |')", line) if len(line) > WIDTH else [line]:
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
