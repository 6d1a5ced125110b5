"""Which Servers a person asks for: those of a class or model, or with a reason; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from inferno_operator.cli.overview import MISSES, Overview, ServerView
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import alternatives

REASONS = (MISSES, *map(str, Reason))
"""What the column READY may say of a Server."""


@dataclass(frozen=True, slots=True)
class WantedServers:
    """Servers of this class and this model with this reason, in any case; "" takes all."""

    service_class: str = ""
    model: str = ""
    reason: str = ""

    def check(self, seen: Overview) -> None:
        """Refuse what none of the Servers that there are has.

        Raises
        ------
        InputError
            No Server has the class or the model, or there is no such reason.
        """
        views = seen.servers
        if not views:
            return
        specs = [view.spec for view in views if view.spec]
        _check("class", self.service_class, {spec.service_class for spec in specs})
        _check("model", self.model, {spec.model for spec in specs})
        _check("reason", self.reason, {*REASONS, *(view.state for view in views)} - {""})

    def of(self, seen: Overview) -> Overview:
        """Return an overview of these Servers, and of all cards."""
        return seen.with_servers(view for view in seen.servers if self._has(view))

    def _has(self, view: ServerView) -> bool:
        service_class = view.spec.service_class if view.spec else ""
        model = view.spec.model if view.spec else ""
        pairs = (
            (self.service_class, service_class),
            (self.model, model),
            (self.reason, view.state),
        )
        return all(_same(asked, found) for asked, found in pairs if asked)


def _same(asked: str, found: str) -> bool:
    return asked.casefold() == found.casefold()


def _check(option: str, asked: str, known: Iterable[str]) -> None:
    """Refuse a name that nothing has."""
    names = sorted(known)
    if asked and not any(_same(asked, name) for name in names):
        owner = "there is no" if option == "reason" else "no Server has the"
        raise InputError(
            f"--{option} {asked}: {owner} {option} {asked!r}{alternatives(asked, names)}"
        )
