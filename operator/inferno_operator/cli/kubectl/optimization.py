"""`kubectl inferno plan`, `optimize` and `explain`: what an optimization decides, and why."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import (
    Changes,
    Format,
    Output,
    TimeLimit,
    examples,
    interruptible,
    show,
    warn,
    working,
)
from inferno_operator.cli.kubectl.places import now, read, run, somewhere
from inferno_operator.cli.kubectl.servers import show_overview
from inferno_operator.cli.options.currency import IN_CENTS, Currency, money_of
from inferno_operator.cli.options.fail_on import FailOn, checks_of, refuse
from inferno_operator.cli.options.rows import Filter, Sort

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.cli.overview import Overview
    from inferno_operator.resources.observation import Observation

app = typer.Typer()

OptimizerName = Annotated[
    str | None,
    typer.Argument(metavar="OPTIMIZER", help="Which one, where there are several."),
]


@app.command(
    epilog=examples(
        "kubectl inferno plan",
        "kubectl inferno plan fleet -n llm --set 'server.*.load.arrivalRate*=1.5'",
    )
)
@somewhere
def plan(  # noqa: PLR0913 - an argument for each option
    place: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: Output = Format.TABLE,
    changes: Changes = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
    *,
    fail_on: FailOn = [],  # noqa: B006 - typer reads it and never changes it
    words: Filter = "",
    sort: Sort = "",
    currency: Currency = IN_CENTS,
) -> None:
    """Show what an optimization would change; change nothing.

    Reads the namespace, solves on this machine as the operator would, and compares with the
    allocations that are desired now.
    """
    from inferno_operator.cli.kubectl.dry_run import decide
    from inferno_operator.cli.preview import plan_document, preview
    from inferno_operator.cli.tables.order import RowOrder
    from inferno_operator.cli.tables.plan import changes_table, plan_parts

    checks, money = checks_of(fail_on), money_of(currency)
    namespace, observations = read(place)
    with working("optimizing"):
        outcome = decide(observations, namespace, optimizer, changes, time_limit)
    warn(outcome.idle)
    solution, name = outcome.solution, outcome.optimizer.metadata.name
    planned = preview(observations, outcome.snapshot, solution)
    show(
        output,
        lambda: plan_document(name, changes, planned, solution),
        lambda: plan_parts(planned, solution, money),
        lambda: changes_table(planned, solution, money),
        RowOrder.asked(words, sort),
    )
    refuse(solution, checks)


@app.command(
    epilog=examples(
        "kubectl inferno optimize --wait",
        "kubectl inferno optimize fleet -n llm --wait --timeout 60 -o json",
    )
)
@somewhere
def optimize(
    place: "KubectlOptions",
    optimizer: OptimizerName = None,
    output: Output = Format.TABLE,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it, and show the result.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")
    ] = 300.0,
    currency: Currency = IN_CENTS,
) -> None:
    """Ask the operator to optimize.

    Sets spec.optimize of the Optimizer, and nothing else. Ctrl-C ends the waiting only.

    --wait exits with 0 when the optimization is done, also if its Plan then waits for approval
    (listed as "waiting" by -o json), and with 1 if it fails or is not done in time.
    """
    money = money_of(currency)
    with interruptible(lambda: typer.echo("stopped waiting; the request stays", err=True)):
        if wait:
            show_overview(output, run(place, lambda s: _optimize(s, optimizer, timeout)), money)
            return
        asked = run(place, lambda session: _ask(session, optimizer))
    show(
        output,
        lambda: asked.resource.to_json() if asked.resource else {},
        lambda: [f"{asked.reference}: asked to optimize"],
    )


@app.command(
    epilog=examples(
        "kubectl inferno explain premium-granite-13b",
        "kubectl inferno explain Premium-granite_13b -n llm -o yaml",
    )
)
@somewhere
def explain(
    place: "KubectlOptions",
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name, or its spec.name.")],
    optimizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which one, where there are several.")
    ] = None,
    output: Output = Format.TABLE,
    time_limit: TimeLimit = 30.0,
    *,
    currency: Currency = IN_CENTS,
) -> None:
    """Show every option of one Server, and its conditions.

    Each accelerator with its numbers and, where it is out, why. For a Server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.cli.kubectl.dry_run import decide
    from inferno_operator.cli.kubectl.selection import choose_server
    from inferno_operator.cli.measurement import reported
    from inferno_operator.cli.tables.calibration import doubt_parts
    from inferno_operator.cli.tables.measurement import comparison_parts
    from inferno_operator.cli.tables.solution import option_parts, saved_work_parts
    from inferno_operator.cli.tables.top import condition_parts
    from inferno_operator.cli.tables.what_if import remedy_parts
    from inferno_operator.resources import Model
    from inferno_operator.resources.observation import only, readable
    from inferno_optimizer.explain.options import explain, with_choice
    from inferno_optimizer.explain.remedies import remedies
    from inferno_optimizer.wire.codec import encode_explanation, encode_remedies

    money = money_of(currency)
    namespace, observations = read(place)
    chosen = choose_server(observations, namespace, server)
    name, conditions = chosen.spec.name, chosen.status.conditions
    objects = readable(observations)
    models = [m for m in only(Model, objects) if m.spec.name == chosen.spec.model]
    measurements = [item for item in reported(objects) if item.server is chosen]
    with working("looking for what would serve it"):
        outcome = decide(observations, namespace, optimizer, time_limit=time_limit)
        system, solution = outcome.snapshot.system, outcome.solution
        options = with_choice(explain(system, name), system, solution, name)
        ways_out = remedies(system, solution, name)
    decision = next(d for d in solution.decisions if d.server == name)
    show(
        output,
        lambda: {
            "options": encode_explanation(options),
            "remedies": encode_remedies(ways_out),
            "measured": chosen.status.measured.to_json() if chosen.status.measured else None,
            "conditions": [condition.to_json() for condition in conditions],
        },
        lambda: (
            *option_parts(options, money),
            *doubt_parts(models),
            *saved_work_parts(system, name),
            *remedy_parts(decision, ways_out),
            *(part for item in measurements for part in comparison_parts(item)),
            *condition_parts(conditions, now()),
        ),
    )


async def _ask(session: "Session", name: str | None) -> "Observation":
    """Request an optimization; return the Optimizer after the request."""
    from inferno_operator.cli.kubectl.selection import choose_optimizer

    chosen = choose_optimizer(await session.optimizers(), session.namespace, name)
    return await session.request(chosen.metadata.name)


async def _optimize(session: "Session", name: str | None, patience: float) -> "Overview":
    """Request an optimization, wait until it is done; the overview with the Plans that wait."""
    from inferno_operator.cli.kubectl.answer import in_order, waiting
    from inferno_operator.cli.kubectl.follow import follow_request
    from inferno_operator.cli.overview import overview

    asked = await _ask(session, name)
    with working(f"{asked.reference}: asked to optimize") as say:
        await follow_request(session, asked.reference.key, asked.generation, patience, say)
        plans = in_order(await session.plans())
        seen = overview(await session.objects())
        return replace(seen, waiting=tuple(waiting(plans, asked.reference.key.name)))
