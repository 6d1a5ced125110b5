"""How good a plan is, as a number that a page begins with."""

from inferno_operator.cli.options.currency import Money
from inferno_operator.pages.figures import KeyFigure
from inferno_operator.resources import Certificate


def could_cost_less(proof: Certificate | None, money: Money) -> KeyFigure:
    """How far a plan may be from the best one, as its certificate says; None: there is no plan."""
    title = "Could cost less by"
    if proof is None:
        return KeyFigure(title, "-", "no plan was made yet")
    if proof.objective is None or proof.bound is None:
        return KeyFigure(title, "-", f"the solver {proof.solver} proves no bound")
    less = money.amount(max(proof.objective - proof.bound, 0.0))
    return KeyFigure(title, less, f"{money.rate} at most, proven for the load it serves")
