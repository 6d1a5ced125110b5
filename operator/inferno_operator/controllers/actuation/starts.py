"""What the pods of a ModelBooster tell of starts: which replicas are cold, and lead times."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from inferno_operator.controllers.actuation.lead_times import FirstStarts, lead_times
from inferno_operator.controllers.actuation.pods import PodCounts
from inferno_operator.controllers.actuation.prompt_caches import cold_replicas, warm_after
from inferno_operator.controllers.actuation.serving_pods import ServingPods
from inferno_operator.controllers.actuation.targets import replica_places
from inferno_operator.resources import MeasuredLeadTime, Server
from inferno_operator.resources.model_booster import ModelBoosterRef


@dataclass(frozen=True, slots=True)
class Starts:
    """What is known of the starts of replicas.

    Attributes
    ----------
    cold
        The replicas that compute prompts and have just started, by place.
    warm_after
        Time until the next one is warm [s]; None without one.
    lead_times
        How long new replicas take to serve.
    """

    cold: Mapping[str, int]
    warm_after: float | None
    lead_times: tuple[MeasuredLeadTime, ...]


def read_starts(
    server: Server,
    reference: ModelBoosterRef,
    pods: ServingPods | None,
    first: FirstStarts,
    now: datetime,
) -> Starts | None:
    """Return what the pods of a Server tell; None while their first list is awaited.

    Without `pods`, none is known.
    """
    places = replica_places(reference, server.metadata.namespace)
    counts = [PodCounts() if pods is None else pods.ready(place) for place in places]
    counted = [each for each in counts if each is not None]
    if len(counted) < len(counts):
        return None
    names = [backend.place for backend in reference.backends]
    started = [
        first.saw_ready(place, each.start_seconds)
        for place, each in zip(places, counted, strict=True)
    ]
    ready = {
        backend.place: each.ready_since
        for backend, each in zip(reference.backends, counted, strict=True)
        if backend.role != "Decode"
    }
    seconds = dict(zip(names, started, strict=True))
    return Starts(
        cold_replicas(server, ready, now),
        warm_after(server, ready, now),
        lead_times(server, seconds),
    )
