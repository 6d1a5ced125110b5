"""The pods of the servings of ModelBoosters, whose replicas have several pods each."""

from collections import defaultdict
from collections.abc import Callable

from inferno_operator.controllers.actuation.pods import PodCounts, count_pods, whole_replicas
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import POD, Key, Manifest, Now, Place
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Informers
from inferno_optimizer.errors import InfernoError


class ServingPods:
    """Follows pods, and knows by their labels of which serving of a dialect they are.

    Parameters
    ----------
    informers, dialect
        What watches; the dialect of the servings.
    changed
        Called with a serving whose pods changed.
    known
        Called when all pods are known, or why they are not.
    now
        The time of day.
    """

    def __init__(
        self,
        informers: Informers,
        dialect: Dialect,
        changed: Callable[[Place], None],
        known: Callable[[], None],
        now: Now,
    ) -> None:
        self._dialect, self._report, self._now = dialect, changed, now
        self._keys: defaultdict[Place, set[Key]] = defaultdict(set)
        self._pods = informers.subscribe(
            [POD], self._noted, listed=lambda _: known(), lost=lambda *_: known()
        )

    async def run(self) -> None:
        """Follow pods until cancelled."""
        await self._pods.run()

    def ready(self, serving: Place) -> PodCounts | None:
        """Return the replicas of a serving, or of a role of its one group, that are ready.

        None while the first list is awaited. If pods may not be read, there are none.
        """
        if not self._pods.is_complete and self._pods.trouble is None:
            return None
        keys = sorted(self._keys.get(Place(serving.kind, serving.key), ()))
        pods = filter(None, (self._pods.get(Place(POD, key)) for key in keys))
        group = "role-id" if serving.part else "group-name"
        own = [pod for pod in pods if serving.part in ("", self._role(pod))]
        return count_pods(whole_replicas(own, self._dialect.pod_label(group)), self._now())

    @property
    def trouble(self) -> InfernoError | None:
        """Why pods may not be read; None if they may, or if the answer is awaited."""
        return self._pods.trouble

    def _role(self, pod: Manifest) -> str:
        role: str = pod["metadata"]["labels"].get(self._dialect.pod_label("role"), "")
        return role

    def _noted(self, difference: ObjectDifference) -> None:
        key = difference.place.key
        before, after = map(self._serving, (difference.before, difference.after))
        if before is not None and before != after:
            self._keys[before].discard(key)
        if after is not None:
            self._keys[after].add(key)
        for serving in filter(None, {before, after}):
            self._report(serving)

    def _serving(self, pod: Manifest | None) -> Place | None:
        """Return the serving of a pod, if it has one."""
        labels = pod["metadata"].get("labels", {}) if pod is not None else {}
        name = labels.get(self._dialect.pod_label("name"))
        if pod is None or name is None:
            return None
        return Place(self._dialect.serving, Key(Key.of(pod).namespace, name))
