"""`inferno sample`, `plan`, `explain` and `report`: what every server would get, and why."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    Changes,
    CurvePlot,
    Format,
    Lenient,
    LinearProgram,
    Output,
    TimeLimit,
    examples,
    limit_time,
    show,
    trace_solver,
    warn,
    working,
    write,
)
from inferno_operator.cli.options.currency import IN_CENTS, Currency, Money, money_of
from inferno_operator.cli.options.fail_on import FailOn, checks_of, refuse
from inferno_operator.cli.options.inputs import InNamespace, Paths
from inferno_operator.cli.options.rows import Filter, Sort

if TYPE_CHECKING:
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_optimizer.solution import Solution
    from inferno_optimizer.system import System

app = typer.Typer()

PLAN_EXAMPLES = examples(
    "kubectl get inferno -o yaml | inferno plan - -o json",
    "inferno plan samples/fleet --set 'server.*.load.arrivalRate*=1.5'",
    "inferno plan samples/fleet --fail-on unserved --fail-on 'gap>0.01'",
    "inferno plan samples/fleet --write-lp plan.lp",
    "inferno plan samples/fleet --set accelerator.B200.type=B200 "
    "--set accelerator.B200.cost=100 --set capacity.B200=8 --set 'model.*.B200=H100' "
    "--set 'model.*.B200.alpha*=0.5'",
)


@app.command(
    epilog=examples(
        "inferno sample | inferno plan -",
        "inferno sample > sample.yaml && inferno explain sample.yaml Free-granite-13b",
    )
)
def sample() -> None:
    """Print a small system, to try the other commands with.

    It has two servers of one model, and what they may run on. Write it to a file, change it, and
    give the file to the other commands.
    """
    from importlib.resources import files

    text = files("inferno_operator.cli.offline").joinpath("sample.yaml").read_text("utf-8")
    typer.echo(text, nl=False)


@app.command("optimize", hidden=True, epilog=PLAN_EXAMPLES)
@app.command(epilog=PLAN_EXAMPLES)
def plan(  # noqa: PLR0913 - an argument for each option
    paths: Paths,
    output: Output = Format.TABLE,
    changes: Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
    *,
    curve: CurvePlot = None,
    write_lp: LinearProgram = None,
    fail_on: FailOn = [],  # noqa: B006 - typer reads it and never changes it
    words: Filter = "",
    sort: Sort = "",
    currency: Currency = IN_CENTS,
    namespace: InNamespace = "",
    lenient: Lenient = False,
) -> None:
    """Show what every server would get.

    Needs no cluster and changes nothing. `inferno optimize` is another name of this command.
    """
    from inferno_operator.cli.drawing import draw_solver_curve
    from inferno_operator.cli.tables.table import RowOrder
    from inferno_optimizer.explain.changes import parse_change
    from inferno_optimizer.optimize import formulate_lp, optimize
    from inferno_optimizer.wire.what_if import apply_changes

    checks, rows = checks_of(fail_on), RowOrder.parse(words, sort)
    money, doubts = money_of(currency), list[str]()
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=doubts.extend)
    system = system if curve is None else trace_solver(system)
    changed, idle = apply_changes(system, map(parse_change, changes))
    warn(idle)
    with working(f"optimizing {len(system.servers)} servers"):
        solution = optimize(system)
    if curve is not None:
        write(curve, draw_solver_curve(solution.certificate))
    before = solution
    if changes:
        with working("optimizing with what is changed"):
            solution = optimize(changed)
    if write_lp is not None:
        write(write_lp, formulate_lp(changed, solution))
    if changes:
        _show_comparison(output, changes, changed, before, solution, rows, money)
    else:
        _show_solution(output, system, solution, rows, money)
    warn(doubts)
    refuse(solution, checks)


def _show_solution(
    output: Format, system: "System", solution: "Solution", rows: "RowOrder", money: Money
) -> None:
    """Show what every server gets."""
    from inferno_operator.cli.tables.solution import describe_solution
    from inferno_optimizer.wire.codec import encode_solution

    show(
        output,
        lambda: encode_solution(solution),
        lambda: describe_solution(system, solution, money),
        rows=rows,
    )


def _show_comparison(
    output: Format,
    changes: list[str],
    system: "System",
    before: "Solution",
    after: "Solution",
    rows: "RowOrder",
    money: Money,
) -> None:
    """Show what differs for the servers when some things are changed."""
    from inferno_operator.cli.tables.solution import describe_comparison, tabulate_differences
    from inferno_optimizer.explain.comparison import compare
    from inferno_optimizer.wire.codec import encode_comparison

    comparison = compare(before, after)
    show(
        output,
        lambda: encode_comparison(changes, comparison),
        lambda: describe_comparison(comparison, system, money),
        lambda: tabulate_differences(comparison.differences, system, money),
        rows,
    )


@app.command(epilog=examples("inferno explain samples/small Premium-granite-13b"))
def explain(
    paths: Paths,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name (spec.name).")],
    output: Output = Format.TABLE,
    time_limit: TimeLimit = 30.0,
    *,
    currency: Currency = IN_CENTS,
    namespace: InNamespace = "",
    lenient: Lenient = False,
) -> None:
    """Show every option of one server.

    Each accelerator with its numbers and, where it is out, why. For a server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.tables.solution import describe_explanation, explain_decision
    from inferno_optimizer.explain.options import explain
    from inferno_optimizer.optimize import optimize

    money = money_of(currency)
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=warn)
    explain(system, server)  # refuses an unknown name before it takes time
    with working("looking for what would serve it"):
        found = explain_decision(system, optimize(system), server)
    show(output, found.to_json, lambda: describe_explanation(system, found, money))


@app.command(epilog=examples("inferno report samples/fleet --html plan.html"))
def report(  # noqa: PLR0913 - an argument for each option
    paths: Paths,
    html: Annotated[
        Path, typer.Option(metavar="FILE", help="The page to write.", show_default=False)
    ],
    changes: Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
    *,
    fail_on: FailOn = [],  # noqa: B006 - typer reads it and never changes it
    currency: Currency = IN_CENTS,
    namespace: InNamespace = "",
    lenient: Lenient = False,
) -> None:
    """Write what every server would get as a page (HTML).

    The page is one HTML file that needs no network. For the most important servers that get
    less than they need, it names the smallest changes that would serve them.
    """
    from inferno_operator.cli.report import build_fleet_page
    from inferno_operator.pages.html import render_fleet
    from inferno_optimizer.explain.changes import parse_change
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.wire.what_if import apply_changes

    checks, money = checks_of(fail_on), money_of(currency)
    system = _read(paths, time_limit, namespace, lenient=lenient, doubt=warn)
    system, idle = apply_changes(system, map(parse_change, changes))
    warn(idle)
    with working(f"optimizing {len(system.servers)} servers") as tell:
        solution = optimize(system)
        tell("looking for what would serve all")
        page = build_fleet_page(f"Plan for {len(system.servers)} servers", system, solution, money)
    write(html, render_fleet(page))
    refuse(solution, checks)


def _read(
    paths: list[str],
    time_limit: float,
    namespace: str,
    *,
    lenient: bool,
    doubt: Callable[[Sequence[str]], None],
) -> "System":
    """Return the system that files describe, with a time limit for the exact solver [s].

    `doubt` is called with what may be meant otherwise; the plan says what follows from it.
    """
    from inferno_operator.cli.offline.system import read_system, refuse_unknown

    unknown = warn if lenient else refuse_unknown
    system = read_system(paths, unknown, remark=warn, doubt=doubt, namespace=namespace)
    return limit_time(system, time_limit)
