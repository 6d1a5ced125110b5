"""Who else writes the number of replicas of a workload, and what is remembered of writes.

An autoscaler is left alone for as long as it exists, anybody else for five minutes. A number of a
ModelBooster that is too small is set back at once: with each edit of its manifest, somebody sets
the number of the manifest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.scaling.boosters import Bounds
from inferno_operator.controllers.scaling.pods import ClusterClock, FirstStarts, is_gated
from inferno_operator.controllers.scaling.status import PAUSE, RECHECK, build_refusal
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import HORIZONTAL_POD_AUTOSCALER, Kind, Manifest, Place
from inferno_operator.runtime.ports import FieldManager, GoneError, Reader, RejectedError, Served


async def list_autoscalers(reader: Reader, namespace: str) -> Sequence[Manifest]:
    """Return the autoscalers of a namespace, or of all (""); none without the right to list."""
    try:
        return (await reader.list(HORIZONTAL_POD_AUTOSCALER, namespace)).manifests
    except (GoneError, RejectedError):
        return ()


ScaleTarget = tuple[str, str, str]
"""The API group, the kind and the name of an object that an autoscaler scales."""


def target_of(autoscaler: Manifest) -> ScaleTarget:
    """Return the API group, the kind and the name of the object that an autoscaler scales."""
    target = autoscaler.get("spec", {}).get("scaleTargetRef", {})
    group = target.get("apiVersion", "").rpartition("/")[0]
    return group, target.get("kind", ""), target.get("name", "")


def scaled_object_of(autoscaler: Manifest) -> str | None:
    """Return the name of the ScaledObject that an autoscaler belongs to, if it does."""
    owners = autoscaler["metadata"].get("ownerReferences", ())
    return next((owner["name"] for owner in owners if owner["kind"] == "ScaledObject"), None)


def scalers_of(autoscalers: Sequence[Manifest]) -> Mapping[ScaleTarget, str]:
    """Return what scales each object: a HorizontalPodAutoscaler, or the ScaledObject behind it.

    Of several that scale the same object it is the first.
    """
    scalers = {}
    for autoscaler in reversed(autoscalers):
        own = f"HorizontalPodAutoscaler {autoscaler['metadata']['name']!r}"
        behind = scaled_object_of(autoscaler)
        title = own if behind is None else f"ScaledObject {behind!r} with {own}"
        scalers[target_of(autoscaler)] = title
    return scalers


@dataclass(frozen=True, slots=True)
class ForeignWriter:
    """Another writer of the number of replicas, and when this operator may write again.

    `until` is None as long as the writer exists: then it would set the number back at once.
    """

    name: str
    until: datetime | None = None

    @property
    def message(self) -> str:
        """What the writer is, and what to do."""
        stop = "remove it, or set spec.actuation to Publish"
        if self.until is None:
            return f"{self.name} scales the workload too: {stop}"
        return (
            f"{self.name} changed the number of replicas: stop that writer, or set"
            f" spec.actuation to Publish; the operator sets the number after"
            f" {self.until:%H:%M:%S} UTC"
        )


def find_autoscaler(place: Place, scalers: Mapping[ScaleTarget, str]) -> ForeignWriter | None:
    """Return the autoscaler that scales an object, of `scalers_of` its namespace."""
    name = scalers.get((place.kind.group, place.kind.kind, place.key.name))
    return None if name is None else ForeignWriter(name)


def find_last_writer(manifest: Manifest, part: str = "") -> str | None:
    """Return who has set the number of replicas last; None: the operator, "": nobody knows.

    The API server notes no time with managers that use the scale subresource, and no manager at
    all once somebody has set 0 with it, whoever sets the number with it later. All roles of a
    serving, one of which is the `part`, have the same managers; our controller of ModelBoosters
    is one of them, and keeps their numbers.
    """

    def sets(entry: Manifest) -> bool:
        spec = entry.get("fieldsV1", {}).get("f:spec", {})
        return "f:roles" in spec.get("f:template", {}) if part else "f:replicas" in spec

    owners = [entry for entry in manifest["metadata"].get("managedFields", ()) if sets(entry)]
    managers = [entry.get("manager", "") for entry in owners]
    ours = {FieldManager.ACTUATION, FieldManager.BOOSTERS} if part else {FieldManager.ACTUATION}
    if ours.intersection(managers):
        return None
    return f"field manager {managers[-1]!r}" if managers else ""


TRIES = 3
"""Failed writes in a row after which a Server is blocked."""

UNKNOWN = "an unknown writer"
"""Another writer of a number of replicas whom nobody knows."""

KindName = tuple[str, str]
"""The apiVersion and the kind of a workload."""


@dataclass(frozen=True, slots=True)
class ForeignNumber:
    """A number of replicas of another writer, when it was set, and when it set its first one."""

    replicas: int
    since: datetime
    first: datetime

    @property
    def until(self) -> datetime:
        """Until when it is left alone, also if it changes all the time."""
        return min(self.since + PAUSE, self.first + 2 * PAUSE)


@dataclass(frozen=True, slots=True)
class Reset:
    """When another writer set a number, by which edit, and whether the operator set it back."""

    at: datetime
    revision: str
    is_undone: bool = False


@dataclass(slots=True)
class WorkloadMemory:
    """What is remembered of a workload between reconciles.

    An object that was created again has nobody to fight with, and one that is older now was
    restored, and nobody wrote it.
    """

    uid: str = ""
    version: int = 0
    replicas: int | None = None  # written last, or found and disputed by nobody
    bounds: Bounds | None = None  # of a backend, found with them; None since a write
    is_uncertain: bool = False  # the last write failed: it may have arrived
    foreign_number: ForeignNumber | None = None  # what another writer has set
    failures: int = 0  # writes that failed since one that succeeded
    failure: tuple[str, datetime] | None = None  # the last error, and its time
    reset: Reset | None = None  # the last number of another writer that had to be set back
    repeated_writer: ForeignWriter | None = None  # who has set such a number again, without an edit
    gates: Mapping[str, datetime | None] = field(default_factory=dict)
    """When the gates of pods were opened, by uid; None while they are gated."""
    starts: FirstStarts = field(default_factory=FirstStarts)

    def note_object(self, uid: str, version: int) -> None:
        """Take note of the object; forget another one of the same name, and a newer version."""
        if self.uid not in ("", uid) or version < self.version:
            self.replicas, self.bounds, self.is_uncertain, self.gates = None, None, False, {}
            self.foreign_number = self.failure = self.reset = None
            self.failures = 0
        self.uid, self.version = uid, version

    def note_gates(self, pods: Iterable[Manifest], now: datetime) -> Mapping[str, datetime]:
        """Return when the gates of pods were opened, by uid, as far as that was seen."""
        before, gates = self.gates, dict[str, datetime | None]()
        for pod in pods:
            uid = pod["metadata"].get("uid", "")
            if is_gated(pod):
                gates[uid] = None
            elif uid in before:
                gates[uid] = before[uid] or now
        self.gates = gates
        return {uid: opened for uid, opened in gates.items() if opened is not None}

    def note_write(self, replicas: int) -> None:
        """Remember that a write succeeded."""
        self.note_undisputed(replicas)
        self.failures, self.failure = 0, None

    def note_failure(self, error: str, now: datetime) -> None:
        """Remember that a write failed."""
        self.failures, self.failure, self.is_uncertain = self.failures + 1, (error, now), True

    def note_undisputed(self, replicas: int, bounds: Bounds | None = None) -> None:
        """Remember a number that nobody disputes, or no longer, and the bounds that ask for it."""
        self.replicas, self.bounds = replicas, bounds
        self.is_uncertain, self.foreign_number = False, None
        if self.reset is not None:
            self.reset = replace(self.reset, is_undone=True)

    def may_have_written(self, known: int | None, wanted: int | None) -> bool:
        """Whether a number that the API server names nobody for may be the operator's own.

        It wrote that and got no answer, or ended before it recorded it.
        """
        return self.is_uncertain or (self.replicas is None and known != wanted)

    def leave_alone(
        self, replicas: int, writer: str, paused: datetime | None, now: datetime
    ) -> ForeignWriter | None:
        """Take note of a number of another writer; returns that as long as it is left alone.

        `paused` says since when the condition of the Server tells of that writer.
        """
        since = now if paused is None else min(paused, now)
        foreign = self.foreign_number or ForeignNumber(replicas, since, since)
        if foreign.replicas != replicas:
            foreign = ForeignNumber(replicas, now, foreign.first)
        self.foreign_number = foreign
        if now < foreign.until:
            return ForeignWriter(writer, foreign.until)
        self.note_undisputed(replicas)
        return None

    def note_reset(self, writer: str, revision: str, now: datetime) -> None:
        """Take note that a number is set back: a fight, if that was so before and without an edit.

        A controller of boosters sets its own numbers once after each edit.
        """
        before = self.reset
        if before is not None and not before.is_undone:
            return  # the same one: the write that was to undo it failed
        if before is not None and before.at + PAUSE > now and before.revision == revision:
            self.repeated_writer = ForeignWriter(writer, now + PAUSE)
        self.reset = Reset(now, revision)

    def find_repeated_writer(self, now: datetime) -> ForeignWriter | None:
        """Return who has set a number again and again until lately."""
        writer = self.repeated_writer
        return writer if writer and writer.until and writer.until > now else None

    def find_obstacle(self, now: datetime) -> Verdict | None:
        """Return the verdict that writes fail; None if the next write is to be tried."""
        if self.failure is None or self.failures < TRIES or now - self.failure[1] >= RECHECK:
            return None
        return build_refusal(
            "Blocked", f"the number of replicas cannot be written: {self.failure[0]}"
        )


@dataclass(frozen=True, slots=True)
class WriteMemory:
    """What is remembered between reconciles; without it, only messages and pauses differ."""

    kinds: dict[KindName, Served] = field(default_factory=dict)  # with a scale subresource
    booster_kinds: set[Kind] = field(default_factory=set)  # that the API server serves
    clock: ClusterClock = field(default_factory=ClusterClock)
    _workloads: defaultdict[Place, WorkloadMemory] = field(
        default_factory=lambda: defaultdict(WorkloadMemory)
    )

    def __getitem__(self, place: Place) -> WorkloadMemory:
        """Return what is remembered of a workload."""
        return self._workloads[place]
