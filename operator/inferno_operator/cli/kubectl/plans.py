"""`kubectl inferno plans`, `diff`, `approve` and `reject`: recorded Plans, and answers to them."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import Format, Output, examples, show
from inferno_operator.cli.kubectl.places import now, run, somewhere
from inferno_operator.cli.options.currency import IN_CENTS, Currency, Money, money_of

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.cli.kubectl.answer import PlanAnswer
    from inferno_operator.cli.tables.cluster import Labels
    from inferno_operator.resources import Plan

app = typer.Typer()

PlanName = Annotated[
    str, typer.Argument(metavar="PLAN", help="Its name, as `kubectl inferno plans` lists it.")
]


@app.command(
    epilog=examples("kubectl inferno plans --namespace llm", "kubectl inferno plans -o json")
)
@somewhere
def plans(
    place: "KubectlOptions", output: Output = Format.TABLE, *, currency: Currency = IN_CENTS
) -> None:
    """Show the recorded Plans, the newest first.

    Those that wait for approval are shown with the reason.
    """
    from inferno_operator.cli.kubectl.answer import in_order
    from inferno_operator.cli.tables.plans import plans_parts

    money = money_of(currency)
    newest_first = in_order(run(place, lambda session: session.plans()))
    show(
        output,
        lambda: [plan.to_json() for plan in newest_first],
        lambda: plans_parts(newest_first, now(), money),
    )


@app.command(
    epilog=examples(
        "kubectl inferno diff fleet-17",
        "kubectl inferno diff fleet-17 -n llm -o yaml",
        "kubectl inferno diff fleet-17 fleet-18",
    )
)
@somewhere
def diff(
    place: "KubectlOptions",
    name: PlanName,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="A Plan to compare it with.")
    ] = None,
    output: Output = Format.TABLE,
    *,
    currency: Currency = IN_CENTS,
) -> None:
    """Show what a Plan changes: each Server, and the cost.

    Of two Plans, show the Servers that they leave in different states. A Plan that is still to be
    carried out is refused if its decisions are not what it shows.
    """
    from inferno_operator.cli.kubectl.answer import check_text, choose_plan, in_order
    from inferno_operator.cli.tables.cluster import labels_of
    from inferno_operator.cli.tables.plans import diff_parts, difference_parts, no_labels
    from inferno_optimizer.errors import InfernoError

    async def read(session: "Session") -> "tuple[list[Plan], Labels]":
        plans = in_order(await session.plans())
        chosen = [choose_plan(plans, session.namespace, each) for each in (name, other) if each]
        try:
            return chosen, labels_of(await session.objects())
        except InfernoError:  # such as without the rights; accelerators are named alone then
            return chosen, no_labels

    money = money_of(currency)
    chosen, labels = run(place, read)
    for plan in chosen:
        if not plan.is_finished:
            check_text(plan)
    if other:
        first, second = chosen
        document = [plan.to_json() for plan in chosen]
        show(output, lambda: document, lambda: difference_parts(first, second, money, labels))
    else:
        show(output, chosen[0].to_json, lambda: diff_parts(chosen[0], money, None, labels))


@app.command(
    epilog=examples(
        "kubectl inferno approve fleet-17", "kubectl inferno approve fleet-17 -n llm --until 2h"
    )
)
@somewhere
def approve(
    place: "KubectlOptions",
    name: PlanName,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When it ends: a time, or a duration such as 2h; never by default.",
        ),
    ] = None,
    output: Output = Format.TABLE,
    *,
    currency: Currency = IN_CENTS,
) -> None:
    """Approve a Plan, so that the operator carries it out.

    A Plan is refused if its decisions are not what it shows.
    Writes status.approval of the Plan with your rights. You need the ClusterRole inferno-approve.
    """
    _answer(place, name, "Approved", until, output, money_of(currency))


@app.command(epilog=examples("kubectl inferno reject fleet-17 --namespace llm"))
@somewhere
def reject(
    place: "KubectlOptions",
    name: PlanName,
    output: Output = Format.TABLE,
    *,
    currency: Currency = IN_CENTS,
) -> None:
    """Reject a Plan, so that the operator never carries it out.

    The same changes are not proposed again at the interval of the Optimizer while the inputs
    stay the same. You need the ClusterRole inferno-approve.
    """
    _answer(place, name, "Rejected", None, output, money_of(currency))


def _answer(
    place: "KubectlOptions",
    name: str,
    state: "PlanAnswer",
    until: str | None,
    output: Format,
    money: Money,
) -> None:
    """Answer a Plan, and show the answer."""
    from inferno_operator.cli.kubectl.answer import deadline
    from inferno_operator.cli.kubectl.reply import answer_plan
    from inferno_operator.cli.tables.plans import summary

    end = None if until is None else deadline(until, now())
    plan = run(place, lambda session: answer_plan(session, name, state, end))
    line = f"Plan {name}: {state.lower()}; {summary(plan, money)}"
    show(output, lambda: {"plan": name, "state": state, "digest": plan.spec.digest}, lambda: [line])
