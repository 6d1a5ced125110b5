"""Where a command of `kubectl inferno` works: its options, and the connection to the cluster."""
# ruff: noqa: PLC0415 - a function imports what only some commands need, so that `--help` is fast

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from inferno_operator.cli.interrupts import run_async

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions, Session
    from inferno_operator.resources.observation import Observation

T = TypeVar("T")

PLACE_OPTIONS = {
    "namespace": typer.Option(
        "--namespace", "-n", metavar="NAME", help="Namespace; the context's by default."
    ),
    "context": typer.Option(
        "--context", metavar="NAME", help="Context of the kubeconfig; the current by default."
    ),
    "kubeconfig": typer.Option("--kubeconfig", metavar="FILE", help="Instead of KUBECONFIG."),
}
"""Options that select the cluster and the namespace, as in kubectl."""


def somewhere(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `PLACE_OPTIONS` to a command; its first argument is a `KubectlOptions`."""

    @wraps(command, assigned=("__name__", "__doc__"))
    def wrapped(invocation: typer.Context, **arguments: Any) -> None:  # noqa: ANN401 - the command's
        from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

        before = invocation.find_root().params  # options after the command take precedence
        place = {name: arguments.pop(name) or before.get(name) for name in PLACE_OPTIONS}
        command(KubectlOptions(**place), **arguments)

    context = Parameter("invocation", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = list(signature(command).parameters.values())[1:]
    options = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, o])
        for name, o in PLACE_OPTIONS.items()
    )
    wrapped.__signature__ = Signature([*own, context, *options])  # type: ignore[attr-defined]  # PEP 362
    return wrapped


def run(place: "KubectlOptions", work: "Callable[[Session], Coroutine[Any, Any, T]]") -> T:
    """Run a coroutine with a connection to the cluster."""
    from inferno_operator.adapters.kubernetes.kubectl import connect

    async def connected() -> T:
        async with connect(place) as session:
            return await work(session)

    return run_async(connected())


def read(place: "KubectlOptions") -> "tuple[str, Sequence[Observation]]":
    """Return the namespace and its objects."""

    async def read_all(session: "Session") -> "tuple[str, Sequence[Observation]]":
        return session.namespace, await session.objects()

    return run(place, read_all)


def now() -> datetime:
    """Return the time of day."""
    return datetime.now(UTC)
