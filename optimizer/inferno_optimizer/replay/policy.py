"""What a policy is: a function from what it may see to the replicas that it wants."""

from collections.abc import Callable
from dataclasses import dataclass

from inferno_optimizer.replay.fleet import ReplayFleet
from inferno_optimizer.replay.plant import StepLoad, StepResult
from inferno_optimizer.replay.trace import Trace
from inferno_optimizer.sizing.queueing import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Seen:
    """What a policy may see at the end of a step.

    Attributes
    ----------
    time_s
        Time since the beginning [s].
    load
        What arrived in the step: requests/s and mean lengths of each server.
    served
        How the servers did: requests that run and wait, latencies.
    present, ready
        Replicas that there are, and those of them that serve; shape (servers, accelerators).
    """

    time_s: float
    load: StepLoad
    served: StepResult
    present: IntArray
    ready: IntArray


@dataclass(frozen=True, slots=True)
class OwnWindows:
    """The windows of rates that servers name [s]; NaN where one names none, shape (servers,)."""

    short_s: FloatArray
    long_s: FloatArray


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy knows beforehand.

    Attributes
    ----------
    fleet
        Servers, accelerators, prices, cards, and the performance that it believes in.
    step_s
        Time between two decisions [s].
    lead_s
        Mean time until a new replica serves [s].
    home
        The accelerator of each server, for a policy that does not choose it.
    trace
        The whole load, for the policies of hindsight only.
    windows
        Over which times servers are measured, for policies that measure; None: the usual ones.
    """

    fleet: ReplayFleet
    step_s: float
    lead_s: float
    home: IntArray
    trace: Trace
    windows: OwnWindows | None = None


Decide = Callable[[Seen], IntArray]
"""Returns the replicas that are wanted: of shape (servers, accelerators), or (servers,) at home."""

Policy = Callable[[Setting], Decide]
"""Makes the function that decides; it is made anew for each replay and may remember."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, and what it needs.

    A policy with `hindsight` knows the whole load: it also decides how a replay begins, and its
    replicas serve at once. Without `percentiles` it sees none, and the replay is faster.
    """

    name: str
    make: Policy
    hindsight: bool = False
    percentiles: bool = True
