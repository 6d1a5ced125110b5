"""Who else writes the number of replicas of a workload, and what is remembered of writes.

An autoscaler is left alone for as long as it exists, anybody else for five minutes. A number of a
ModelBooster that is too small is set back at once: with each edit of its manifest, somebody sets
the number of the manifest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from inferno_operator.controllers.scaling.pods import is_gated
from inferno_operator.controllers.scaling.starts import ClusterClock, FirstStarts
from inferno_operator.controllers.scaling.status import PAUSE, RECHECK, not_written
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
    return {target_of(autoscaler): _title(autoscaler) for autoscaler in reversed(autoscalers)}


def _title(autoscaler: Manifest) -> str:
    own = f"HorizontalPodAutoscaler {autoscaler['metadata']['name']!r}"
    scaled_object = scaled_object_of(autoscaler)
    return own if scaled_object is None else f"ScaledObject {scaled_object!r} with {own}"


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


def autoscaler_of(place: Place, scalers: Mapping[ScaleTarget, str]) -> ForeignWriter | None:
    """Return the autoscaler that scales an object, of `scalers_of` its namespace."""
    name = scalers.get((place.kind.group, place.kind.kind, place.key.name))
    return None if name is None else ForeignWriter(name)


def last_writer(manifest: Manifest, part: str = "") -> str | None:
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
class Failure:
    """Failed writes of a workload in a row, with the last error and its time."""

    count: int
    error: str
    time: datetime


@dataclass(frozen=True, slots=True)
class ForeignNumber:
    """A number of replicas of another writer, when it was set, and when it set its first one."""

    replicas: int
    since: datetime
    first: datetime

    def followed_by(self, replicas: int, now: datetime) -> "ForeignNumber":
        """Return what is there now."""
        return self if replicas == self.replicas else ForeignNumber(replicas, now, self.first)

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
class WriteMemory:
    """What is remembered between reconciles; without it, only messages and pauses differ.

    Parameters
    ----------
    kinds
        Kinds with a scale subresource.
    known
        The number of replicas by workload that this operator has written last, or has found and
        nobody disputes.
    uncertain
        Workloads whose last write failed: it may have arrived.
    seen
        What another writer of the number of replicas has set, by workload.
    failures
        Failed writes by workload, since the last one that succeeded.
    uids
        The uids of the workloads: one that was created again has nobody to fight with.
    resets
        The last number of another writer that had to be set back, by workload.
    fights
        Who has set such a number again, without an edit.
    served
        Kinds of ModelBoosters that the API server serves.
    gates
        When the gates of pods were opened, by workload and uid; None while they are gated.
    versions
        The versions of the workloads: one that is older now was restored, and nobody wrote it.
    clock
        The clock by which pods began.
    starts
        How long pods took to start.
    """

    kinds: dict[KindName, Served] = field(default_factory=dict)
    known: dict[Place, int] = field(default_factory=dict)
    uncertain: set[Place] = field(default_factory=set)
    seen: dict[Place, ForeignNumber] = field(default_factory=dict)
    failures: dict[Place, Failure] = field(default_factory=dict)
    uids: dict[Place, str] = field(default_factory=dict)
    resets: dict[Place, Reset] = field(default_factory=dict)
    fights: dict[Place, ForeignWriter] = field(default_factory=dict)
    served: set[Kind] = field(default_factory=set)
    gates: dict[Place, dict[str, datetime | None]] = field(default_factory=dict)
    versions: dict[Place, int] = field(default_factory=dict)
    clock: ClusterClock = field(default_factory=ClusterClock)
    starts: FirstStarts = field(default_factory=FirstStarts)

    def saw(self, place: Place, uid: str, version: int) -> None:
        """Take note of a workload; forget another one of the same name, and a newer version."""
        if self.uids.get(place, uid) != uid or version < self.versions.get(place, version):
            self.known.pop(place, None)
            self.gates.pop(place, None)
            self.uncertain.discard(place)
            self.seen.pop(place, None)
            self.failures.pop(place, None)
            self.resets.pop(place, None)
        self.uids[place] = uid
        self.versions[place] = version

    def note_gates(
        self, place: Place, pods: Iterable[Manifest], now: datetime
    ) -> Mapping[str, datetime]:
        """Return when the gates of pods were opened, by uid, as far as that was seen."""
        before, gates = self.gates.get(place, {}), dict[str, datetime | None]()
        for pod in pods:
            uid = pod["metadata"].get("uid", "")
            if is_gated(pod):
                gates[uid] = None
            elif uid in before:
                gates[uid] = before[uid] or now
        self.gates[place] = gates
        return {uid: opened for uid, opened in gates.items() if opened is not None}

    def wrote(self, place: Place, replicas: int) -> None:
        """Remember that a write succeeded."""
        self.accept(place, replicas)
        self.failures.pop(place, None)

    def accept(self, place: Place, replicas: int) -> None:
        """Remember a number that nobody disputes, or no longer."""
        self.known[place] = replicas
        self.uncertain.discard(place)
        self.seen.pop(place, None)
        if place in self.resets:
            self.resets[place] = replace(self.resets[place], is_undone=True)

    def may_have_written(self, place: Place, known: int | None, wanted: int | None) -> bool:
        """Whether a number that the API server names nobody for may be the operator's own.

        It wrote that and got no answer, or ended before it recorded it.
        """
        return place in self.uncertain or (place not in self.known and known != wanted)

    def leave_alone(
        self, place: Place, replicas: int, writer: str, paused: datetime | None, now: datetime
    ) -> ForeignWriter | None:
        """Take note of a number of another writer; returns that as long as it is left alone.

        `paused` says since when the condition of the Server tells of that writer.
        """
        since = now if paused is None else min(paused, now)
        seen = self.seen.get(place) or ForeignNumber(replicas, since, since)
        seen = self.seen[place] = seen.followed_by(replicas, now)
        if now < seen.until:
            return ForeignWriter(writer, seen.until)
        self.accept(place, replicas)
        return None

    def sets_back(self, place: Place, writer: str, revision: str, now: datetime) -> None:
        """Take note that a number is set back: a fight, if that was so before and without an edit.

        A controller of boosters sets its own numbers once after each edit.
        """
        before = self.resets.get(place)
        if before is not None and not before.is_undone:
            return  # the same one: the write that was to undo it failed
        if before is not None and before.at + PAUSE > now and before.revision == revision:
            self.fights[place] = ForeignWriter(writer, now + PAUSE)
        self.resets[place] = Reset(now, revision)

    def fight(self, place: Place, now: datetime) -> ForeignWriter | None:
        """Return who has set a number again and again until lately."""
        fight = self.fights.get(place)
        return fight if fight and fight.until and fight.until > now else None

    def failed(self, place: Place, error: str, now: datetime) -> None:
        """Remember that a write failed."""
        before = self.failures.get(place)
        self.failures[place] = Failure(before.count + 1 if before else 1, error, now)
        self.uncertain.add(place)

    def obstacle(self, place: Place, now: datetime) -> Verdict | None:
        """Return the verdict that writes fail; None if the next write is to be tried."""
        failure = self.failures.get(place)
        if failure is None or failure.count < TRIES or now - failure.time >= RECHECK:
            return None
        return not_written(failure.error)
