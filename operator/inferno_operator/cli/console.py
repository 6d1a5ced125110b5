"""What both command lines do around a command: exit statuses, progress, Ctrl-C, output."""
# ruff: noqa: PLC0415 - a function imports what only some output needs, so that `--help` is fast

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperGroup

from inferno_operator.cli.options import Format
from inferno_operator.runtime.files import write_bytes
from inferno_optimizer.errors import InfernoError, InputError, InvalidObjectsError, UnsupportedError

if TYPE_CHECKING:
    from inferno_operator.cli.tables.table import Part, RowOrder, TextTable
    from inferno_optimizer.system import System

T = TypeVar("T")

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130  # exit statuses; after Ctrl-C, by the convention of shells

# Errors of a file that cannot grow: one that has no name is standard output.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Commands(TyperGroup):
    """The commands of a program, which name a bad value as they name those in files."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - of typer's own click
        """Run a command; a value that its option refuses is named in the message."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            wanted, found, _ = error.message.partition(", unable to parse")
            if found or error.message.startswith("Input should "):
                invalid = error.__cause__.errors()[0]  # type: ignore[union-attr]  # pydantic's
                must = wanted.replace("Input should ", "must ", 1)
                error.message = f"{must}, not {invalid['input']!r}"
            raise


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line and exit: 0 on success, 2 on bad input or usage, 1 on another failure."""
    try:
        app(prog_name=name)
    except InfernoError as error:
        for problem in error.errors if isinstance(error, InvalidObjectsError) else (error,):
            sys.stderr.write(f"{name}: {' '.join(str(problem).split())}\n")
        sys.exit(BAD_INPUT if isinstance(error, InputError | UnsupportedError) else FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        where = "standard output: " if error.errno in FULL and not error.filename else ""
        sys.stderr.write(f"{name}: {where}{error.strerror or error}\n")
        _discard_output()
        sys.exit(FAILED)


def _discard_output() -> None:
    """Let what is left to print go nowhere: it would fail again at the end of this process."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def limit_time(system: "System", time_limit: float) -> "System":
    """Return the system with another time limit for the exact solver [s]."""
    return replace(system, options=replace(system.options, time_limit=time_limit))


def trace_solver(system: "System") -> "System":
    """Return the system with the option to tell how the exact solver improved the plan.

    Raises InputError if the options name another solver.
    """
    options = system.options
    if options.unlimited or not options.milp:
        raise InputError(
            "--curve is for the exact solver: it needs milpSolver: true, without unlimited: true"
        )
    return replace(system, options=replace(options, trace=True))


def warn(warnings: Iterable[str]) -> None:
    """Print warnings to standard error, one on each line."""
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def write(file: Path, text: str) -> None:
    """Write a file.

    Raises InputError if the file cannot be written.
    """
    write_bytes(file, text.encode())


@contextmanager
def working(message: str) -> Iterator[Callable[[str], None]]:
    """Show progress on standard error during a long operation.

    The context yields a function that shows a new message: in place on a terminal, otherwise as
    a new line.
    """
    if not sys.stderr.isatty():
        yield partial(typer.echo, err=True)
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(message)) as status:
        yield lambda news: status.update(Text(news))


@contextmanager
def interruptible(
    say: Callable[[], None] = lambda: None, status: int = INTERRUPTED
) -> Iterator[None]:
    """Exit without a traceback on Ctrl-C, after it was said what becomes of the work."""
    try:
        yield
    except KeyboardInterrupt:
        say()
        raise typer.Exit(status) from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which Ctrl-C cancels.

    asyncio sees to that only where Ctrl-C has Python's own handler. Else `KeyboardInterrupt` is
    raised in the middle of some task, which complains of it, or leaves a lock that nobody opens.
    """
    import asyncio

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, before)


def _yaml_text(document: object) -> str:
    """Return a document as YAML; members of enumerations are texts, as in JSON."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_multi_representer(str, yaml.SafeDumper.represent_str)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def show_objects(manifests: Iterable[object]) -> None:
    """Print several objects as one YAML file."""
    import yaml

    typer.echo(yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True), nl=False)


def show(
    output: Format,
    document: Callable[[], object],
    parts: Callable[[], Iterable["Part"]],
    table: "Callable[[], TextTable] | None" = None,
    rows: "RowOrder | None" = None,
) -> None:
    """Print a result: the document as JSON or YAML, a table as CSV, or all parts as text.

    The table is the first of the parts, unless another one is given: for a result whose first
    table is about something else where it has no rows. On a terminal, tables have the columns for
    which there is room. `rows` says which rows the main table has, and their order.
    """

    def arranged(parts: "Iterable[Part]") -> "Iterable[Part]":
        from inferno_operator.cli.tables.table import order_rows

        return parts if rows is None else order_rows(parts, rows, table() if table else None)

    if output is Format.JSON:
        typer.echo(json.dumps(document(), indent=2, ensure_ascii=False))
    elif output is Format.YAML:
        typer.echo(_yaml_text(document()), nl=False)
    elif output is Format.CSV:
        from inferno_operator.cli.tables.table import format_csv

        typer.echo(format_csv(arranged([table()] if table else parts())), nl=False)
    elif sys.stdout.isatty():
        from rich.console import Console

        from inferno_operator.cli.tables.table import style_parts

        console = Console()
        text = style_parts(arranged(parts()), console.width, table() if table else None)
        console.print(text, soft_wrap=True)
    else:
        typer.echo("\n".join(map(str, arranged(parts()))))
