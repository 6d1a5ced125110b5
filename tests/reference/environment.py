"""Every variable that a program of ours reads."""

from collections.abc import Iterable, Iterator

from inferno_operator.settings import VARIABLES
from tests.reference.commands import contexts
from tests.reference.markdown import code, table

OPERATOR = "inferno operator"


def environment() -> str:
    """One table for the operator, one for the other programs."""
    return "\n\n".join(
        [
            "## Of the operator",
            table(
                ("variable", "default", "meaning"),
                [(code(v.name), code(v.default), v.help) for v in VARIABLES],
            ),
            "## Of the other programs",
            table(("variable", "programs", "option", "default", "meaning"), sorted(_others())),
        ]
    )


def names() -> set[str]:
    """Every variable."""
    return {v.name for v in VARIABLES} | {line[0].strip("`") for line in _others()}


def _others() -> Iterator[tuple[str, str, str, str, str]]:
    """Variables that stand for options of other commands, with all commands that read them."""
    programs: dict[tuple[str, str, str, str], list[str]] = {}
    for context in contexts():
        for parameter in context.command.params:
            variable = getattr(parameter, "envvar", None)
            if variable is None or context.command_path == OPERATOR:
                continue
            help_text = str(getattr(parameter, "help", ""))
            default = "" if parameter.default is None else parameter.default
            shown = code(f"{default:g}" if isinstance(default, float) else default)
            key = (code(variable), ", ".join(map(code, parameter.opts)), shown, help_text)
            programs.setdefault(key, []).append(context.command_path)
    for (variable, option, default, help_text), readers in programs.items():
        yield variable, _by_program(readers), option, default, help_text


def _by_program(paths: Iterable[str]) -> str:
    """Return commands behind the program that has them, which is named once."""
    commands: dict[str, list[str]] = {}
    for program, _, command in (path.rpartition(" ") for path in paths):
        commands.setdefault(program, []).append(command)
    return ", ".join(code(f"{program} {', '.join(of)}") for program, of in commands.items())
