"""The option `--fail-on`: plans for which a command exits with a status of its own."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from inferno_operator.runtime.texts import join_names
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Decision, Reason, Solution

UNMET = 3
"""Exit status of a command whose plan is as `--fail-on` says."""

MISTAKES = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.NO_PERFORMANCE_DATA,
        Reason.NO_TARGET,
        Reason.UNKNOWN_ACCELERATOR,
        Reason.UNKNOWN_CAPACITY,
        Reason.UNKNOWN_CLASS,
        Reason.UNKNOWN_MODEL,
    }
)
"""Reasons of servers without a decision because of what a person wrote."""

SHOWN = 5
"""Largest number of servers that a message names."""

GAP = re.compile(r"gap>(?P<most>[0-9.e-]+)")

Check = Callable[[Solution], str]
"""Says in a line why a plan is as the condition says; empty if it is not."""

FailOn = Annotated[
    list[str],
    typer.Option(
        "--fail-on",
        metavar="CONDITION",
        help="Exit with 3 if, in the plan, a server gets less than it needs (unserved), or nothing "
        "is decided for one because of a mistake (invalid), or if a share above X of the value or "
        "of the load of a class may be missing from the best plan (gap>X). Can be repeated.",
        show_default=False,
    ),
]


def checks_of(conditions: Iterable[str]) -> list[Check]:
    """Return a check for each condition.

    Raises
    ------
    InputError
        One is unknown.
    """
    return [_check(condition) for condition in conditions]


def refuse(solution: Solution, checks: Iterable[Check]) -> None:
    """Exit with `UNMET` if a check fails, with a line on standard error for each."""
    failures = [failure for check in checks if (failure := check(solution))]
    for failure in failures:
        typer.echo(failure, err=True)
    if failures:
        raise typer.Exit(UNMET)


def _check(condition: str) -> Check:
    if condition == "unserved":
        return lambda plan: _servers(plan, condition, "get less than they need", _is_unserved)
    if condition == "invalid":
        return lambda plan: _servers(plan, condition, "have mistakes", _is_invalid)
    most = _share(condition)
    if most is None:
        advice = "give unserved, invalid or gap>X, such as gap>0.01"
        raise InputError(f"--fail-on {condition}: {advice}")
    return lambda plan: _gap(plan, condition, most)


def _share(condition: str) -> float | None:
    match = GAP.fullmatch(condition)
    try:
        return float(match["most"]) if match else None
    except ValueError:
        return None


def _is_unserved(decision: Decision) -> bool:
    return decision.reason is not Reason.ALLOCATED


def _is_invalid(decision: Decision) -> bool:
    return decision.reason in MISTAKES


def _servers(
    plan: Solution, condition: str, what: str, is_counted: Callable[[Decision], bool]
) -> str:
    names = [decision.server for decision in plan.decisions if is_counted(decision)]
    number = f"{len(names)} of {len(plan.decisions)} servers"
    return f"--fail-on {condition}: {number} {what}: {join_names(names, SHOWN)}" if names else ""


def _gap(plan: Solution, condition: str, most: float) -> str:
    gap = plan.certificate.gap
    if gap is None:
        return f"--fail-on {condition}: solver {plan.certificate.solver} proves no gap"
    return f"--fail-on {condition}: the gap is {gap:.1e}" if gap > most else ""
