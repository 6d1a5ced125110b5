"""Mode Recommend of Optimizers: in their namespace, actuation writes nothing but status.

Which Optimizer made a decision cannot be told from a Server. So one Optimizer with this mode
stops actuation in its whole namespace. A reconcile reads the Optimizers themselves: a decision is
written after its Optimizer, so no decision is seen without the mode of its Optimizer. If the
Optimizer is deleted, what it recommended stays a recommendation until there is another one.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from inferno_operator.controllers.actuation.decision import Wanted, wanted
from inferno_operator.controllers.actuation.status import ACTUATED
from inferno_operator.resources import Optimizer
from inferno_operator.resources.objects import Key, Kind, Manifest, kind_of
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.informer import Informer
from inferno_operator.runtime.ports import Change, Cluster, GoneError, Listing
from inferno_optimizer.errors import InfernoError

OPTIMIZER = kind_of(Optimizer)

RECOMMENDED = "Recommended"
"""The reason of the condition `Actuated` in mode Recommend."""


async def recommending(namespace: str, cluster: Cluster) -> str | None:
    """Return what `recommended_by` returns for the Optimizers of a namespace."""
    try:
        listing = await cluster.list(OPTIMIZER, namespace)
    except GoneError:  # the kind is not installed
        return None
    return recommended_by(listing.manifests)


def recommended_by(optimizers: Collection[Manifest]) -> str | None:
    """Return why only recommendations are made in a namespace; "" if decisions are actuated.

    None if there is no Optimizer.
    """
    if not optimizers:
        return None
    names = sorted(m["metadata"]["name"] for m in optimizers if _recommends(m))
    return f"Optimizer {names[0]!r} has mode Recommend" if names else ""


def decision_for(observation: Observation, why: str | None) -> Wanted:
    """Read the decision for a Server; `why` is that of `recommending`."""
    before = observation.status.condition(ACTUATED)
    if why is None and before is not None and before.reason == RECOMMENDED:
        why = "its Optimizer, which had mode Recommend, was deleted"
    return Wanted(None, why, reason=RECOMMENDED) if why else wanted(observation)


def _recommends(manifest: Manifest | None) -> bool:
    """Whether an Optimizer has the mode, also if the rest of its spec is invalid."""
    return manifest is not None and manifest.get("spec", {}).get("mode") == "Recommend"


class RecommendationWatch:
    """Watches whether namespaces have Optimizers with mode Recommend.

    Parameters
    ----------
    cluster
        The API server.
    namespaces
        The namespaces to watch; if empty, all.
    changed
        Called with each namespace where an Optimizer got or lost the mode.
    """

    def __init__(
        self, cluster: Cluster, namespaces: Sequence[str], changed: Callable[[str], None]
    ) -> None:
        self._informer = Informer(cluster, [OPTIMIZER], namespaces, self)
        self._changed = changed
        self._recommending: set[Key] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    def listed(self, listing: Listing) -> None:
        """Take a list of Optimizers."""
        known = {key for key in self._recommending if listing.namespace in ("", key.namespace)}
        found = {Key.of(manifest) for manifest in listing.manifests if _recommends(manifest)}
        self._replace(known, found)

    def changed(self, kind: Kind, change: Change) -> None:
        """Take the creation, change or deletion of an Optimizer."""
        del kind
        if change.manifest is not None:
            key = Key.of(change.manifest)
            recommends = not change.gone and _recommends(change.manifest)
            self._replace({key} & self._recommending, {key} if recommends else set())

    def lost(self, kind: Kind, namespace: str, error: InfernoError) -> None:
        """Do nothing: reconciles read the Optimizers themselves."""

    def _replace(self, before: Iterable[Key], after: Iterable[Key]) -> None:
        """Replace known Optimizers by others, and report the namespaces that differ."""
        different = set(before) ^ set(after)
        self._recommending ^= different
        for namespace in sorted({key.namespace for key in different}):
            self._changed(namespace)
