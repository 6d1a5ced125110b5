"""What in a booster stands in the way of its children, for clusters where nothing admits; pure."""

from collections.abc import Iterator

from inferno_operator.controllers.boosters.booster import Backend, Booster
from inferno_operator.controllers.boosters.convert.context import Problem


def problems(booster: Booster) -> tuple[Problem, ...]:
    """Everything of which no right child can be made, beyond what a conversion itself refuses."""
    if not booster.spec.backends:
        return (Problem("spec.backends", "is missing"),)  # the schema of the original admits that
    return tuple(
        Problem(f"spec.backends[{i}]{path}", text, backend.name)
        for i, backend in enumerate(booster.spec.backends)
        for path, text in (*_of_bounds(backend), *_of_images(backend), *_of_adapters(backend))
    )


def _of_bounds(backend: Backend) -> Iterator[tuple[str, str]]:
    low, high = backend.min_replicas, backend.max_replicas
    if low > high:
        yield ".minReplicas", f"must be at most maxReplicas, which is {high}, not {low}"


def _of_images(backend: Backend) -> Iterator[tuple[str, str]]:
    """An empty image is for the API server to fill in or to refuse."""
    for j, worker in enumerate(backend.workers):
        if any(map(str.isspace, worker.image)):
            yield f".workers[{j}].image", f"must have no spaces, as {worker.image!r} has"


def _of_adapters(backend: Backend) -> Iterator[tuple[str, str]]:
    """An engine that is told of an adapter twice does not start."""
    names = [adapter.name for adapter in backend.lora_adapters]
    for j, name in enumerate(names):
        if name in names[:j]:
            yield f".loraAdapters[{j}].name", f"names {name} once more"
