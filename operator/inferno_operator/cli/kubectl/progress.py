"""Progress of an optimization request, from the status of its Optimizer; pure."""

from dataclasses import dataclass
from enum import Enum, auto

from inferno_operator.resources import Condition, Optimizer, OptimizerStatus
from inferno_operator.resources.conditions import OPTIMIZED
from inferno_operator.resources.observation import Observation
from inferno_optimizer.solution import Reason


class RequestStage(Enum):
    """Stages of a request; the last three are final."""

    ASKED = auto()
    WORKING = auto()
    DONE = auto()
    FAILED = auto()
    WITHDRAWN = auto()


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """A stage and its message."""

    stage: RequestStage
    message: str

    @property
    def over(self) -> bool:
        """Whether the request has ended."""
        return self.stage not in (RequestStage.ASKED, RequestStage.WORKING)


def progress(observation: Observation, requested: int) -> RequestProgress:
    """Return the progress of a request.

    Parameters
    ----------
    observation
        The Optimizer.
    requested
        Its generation at the time of the request. If the Optimizer changes during the request,
        the operator optimizes the newer generation too before it clears the request.
    """
    status, resource = observation.status, observation.resource
    last = status.last_optimization if isinstance(status, OptimizerStatus) else None
    optimized = status.condition(OPTIMIZED)
    if last is not None and last.requested_generation >= requested:
        return RequestProgress(RequestStage.DONE, optimized.message if optimized else "")
    if not isinstance(resource, Optimizer):
        return RequestProgress(RequestStage.FAILED, f"{Reason.INVALID_SPEC}: {observation.problem}")
    if not resource.spec.optimize:
        return RequestProgress(
            RequestStage.WITHDRAWN,
            "spec.optimize was set to false before the optimization was done",
        )
    return _under_way(optimized, requested)


def _under_way(optimized: Condition | None, requested: int) -> RequestProgress:
    if optimized is None or (optimized.observed_generation or 0) < requested:
        return RequestProgress(RequestStage.ASKED, "asked; waiting for the operator to begin")
    if optimized.status == "False":
        return RequestProgress(RequestStage.FAILED, f"{optimized.reason}: {optimized.message}")
    return RequestProgress(RequestStage.WORKING, optimized.message)
