"""Find the objects that names and options of a command line refer to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.tables.servers import Overview, ServerView
from inferno_operator.cli.tables.table import MISSES
from inferno_operator.resources import Model, Optimizer, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError, UnavailableError
from inferno_optimizer.solution import Reason
from inferno_optimizer.suggestions import alternatives

Kind = TypeVar("Kind", bound=Resource)
Named = TypeVar("Named", Server, Model)

REASONS = (MISSES, *map(str, Reason))
"""What the column READY may say of a Server."""


def build_missing_error(kind: type[Resource], key: Key, names: Sequence[str]) -> InputError:
    """Return the error for an object that is not there; `names` are those of its kind that are."""
    if not names:
        return InputError(f"{kind.kind} {key}: namespace {key.namespace!r} has no {kind.kind}")
    return InputError(f"{kind.kind} {key}: there is none{alternatives(key.name, names)}")


def choose_optimizer(
    observations: Iterable[Observation], namespace: str, name: str | None
) -> Optimizer:
    """Return the Optimizer of this name or, without a name, the only one of the namespace.

    Raises
    ------
    InputError
        There is no such Optimizer, there are several, or its spec is invalid.
    """
    by_name = {o.reference.key.name: o for o in observations if o.kind is Optimizer}
    if not by_name:
        raise InputError(f"namespace {namespace!r} has no Optimizer: create one")
    names = sorted(by_name)
    if name is None and len(by_name) > 1:
        several = ", ".join(names)
        raise InputError(f"namespace {namespace!r} has several Optimizers: name one of {several}")
    chosen = name or names[0]
    if chosen not in by_name:
        raise build_missing_error(Optimizer, Key(namespace, chosen), names)
    return _require_readable(by_name[chosen], Optimizer)


def choose_server(observations: Iterable[Observation], namespace: str, name: str) -> Server:
    """Return the Server whose object has this name or, if there is none, whose spec has it.

    Raises
    ------
    InputError
        There is no such Server, or its spec is invalid.
    """
    return _choose(observations, Server, namespace, name)


def choose_model(observations: Iterable[Observation], namespace: str, name: str) -> Model:
    """Return the Model whose object has this name or, if there is none, whose spec has it.

    Raises
    ------
    InputError
        There is no such Model, or its spec is invalid.
    """
    return _choose(observations, Model, namespace, name)


def _choose(
    observations: Iterable[Observation], kind: type[Named], namespace: str, name: str
) -> Named:
    of_kind = [o for o in observations if o.kind is kind]
    for observation in of_kind:
        if observation.reference.key.name == name:
            return _require_readable(observation, kind)
    for observation in of_kind:
        if isinstance(observation.resource, kind) and observation.resource.spec.name == name:
            return observation.resource
    names = sorted(observation.reference.key.name for observation in of_kind)
    raise build_missing_error(kind, Key(namespace, name), names)


def _require_readable(observation: Observation, kind: type[Kind]) -> Kind:
    if not isinstance(observation.resource, kind):
        raise InputError(f"{observation.reference}: {observation.problem}")
    return observation.resource


@dataclass(slots=True)
class ServerFilter:
    """Servers of this class and model, with this reason and these labels; "" takes all.

    Classes, models and reasons are found in any case.
    """

    service_class: str = ""
    model: str = ""
    reason: str = ""
    selector: str = ""
    _labelled: frozenset[str] | None = field(default=None, init=False)
    _is_checked: bool = field(default=False, init=False)

    async def select(self, session: Session, seen: Overview) -> Overview:
        """Return an overview of these Servers, and of all cards.

        While the API server is away, they are those that had the labels before. A name that
        nothing has is refused at first only: the last Server that has it may be deleted later.

        Raises
        ------
        InputError
            See `check`.
        UnavailableError
            It is not known yet which Servers have the labels.
        """
        if not self._is_checked:
            self.check(seen)
            self._is_checked = bool(seen.servers)
        chosen = self.of(seen)
        if not self.selector:
            return chosen
        try:
            self._labelled = await session.selected(Server, self.selector)
        except UnavailableError:
            if self._labelled is None:
                raise
        names = self._labelled
        return chosen.with_servers(view for view in chosen.servers if view.name in names)

    def check(self, seen: Overview) -> None:
        """Refuse what none of the Servers that there are has.

        Raises
        ------
        InputError
            No Server has the class or the model, or there is no such reason.
        """
        specs = [view.spec for view in seen.servers if view.spec]
        reasons = {*REASONS, *(view.state for view in seen.servers)} - {""}
        for option, asked, known in (
            ("class", self.service_class, {spec.service_class for spec in specs}),
            ("model", self.model, {spec.model for spec in specs}),
            ("reason", self.reason, reasons),
        ):
            names = sorted(known)
            if seen.servers and asked and asked.casefold() not in map(str.casefold, names):
                owner = "there is no" if option == "reason" else "no Server has the"
                near = alternatives(asked, names)
                raise InputError(f"--{option} {asked}: {owner} {option} {asked!r}{near}")

    def of(self, seen: Overview) -> Overview:
        """Return an overview of the Servers of the class and model, with the reason."""
        return seen.with_servers(view for view in seen.servers if self._is_wanted(view))

    def _is_wanted(self, view: ServerView) -> bool:
        service_class, model = (view.spec.service_class, view.spec.model) if view.spec else ("", "")
        found = (service_class, model, view.state)
        asked = (self.service_class, self.model, self.reason)
        pairs = zip(asked, found, strict=True)
        return all(ask.casefold() == have.casefold() for ask, have in pairs if ask)
