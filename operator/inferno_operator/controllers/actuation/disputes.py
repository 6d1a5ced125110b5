"""What actuation has taken over from other field managers, and with whom it fights."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from inferno_operator.controllers.actuation.status import PAUSE

Field = tuple[str, str]
"""The uid of an object, and the other manager with the path of the field."""


@dataclass(frozen=True, slots=True)
class Fight:
    """Another manager that sets a field of an object back, and until when it is left to it.

    `has_raised` says whether the field was set nevertheless, because its number was too small.
    """

    uid: str
    problem: str
    until: datetime
    has_raised: bool


@dataclass(frozen=True, slots=True)
class _Taken:
    """When a field was taken over, and the revision of the boosters at that time."""

    time: datetime
    revision: str


@dataclass(slots=True)
class Disputes:
    """Takeovers of fields, to tell edits of a booster from a fight with another manager.

    A controller of boosters sets its own numbers once after each edit of a booster; that is no
    fight. After a restart nothing is known, and a field is taken over once more.
    """

    _written: set[str] = field(default_factory=set)
    """The uids of the objects that actuation has written."""
    _taken: dict[Field, _Taken] = field(default_factory=dict)
    _raised: dict[str, Fight] = field(default_factory=dict)
    """The last fight about an object in which a field was set nevertheless, by uid."""

    def wrote(self, uid: str) -> None:
        """Remember that actuation has written an object."""
        self._written.add(uid)

    def until(
        self, uid: str, causes: Collection[str], revision: str, now: datetime
    ) -> datetime | None:
        """Return until when there is a fight about fields of an object; None if there is none.

        There is none if actuation writes the object for the first time, and then once in each
        revision of the boosters, and once in `PAUSE`.
        """
        if uid not in self._written:
            return None
        self._taken = {key: t for key, t in self._taken.items() if t.time + PAUSE > now}
        fields = [(uid, cause) for cause in causes]
        takeovers = [self._taken[key] for key in fields if key in self._taken]
        times = [taken.time for taken in takeovers if taken.revision == revision]
        if times:
            return max(times) + PAUSE
        self._taken.update(dict.fromkeys(fields, _Taken(now, revision)))
        return None

    def fights(self, found: Iterable[Fight], uids: Iterable[str], now: datetime) -> Sequence[Fight]:
        """Return the fights about some objects: those found now, and those that still last.

        A fight in which a field was set all the same is remembered: it would be gone in a moment.
        """
        self._raised = {uid: fight for uid, fight in self._raised.items() if fight.until > now}
        self._raised |= {fight.uid: fight for fight in found if fight.has_raised}
        return [*found, *(self._raised[uid] for uid in uids if uid in self._raised)]
