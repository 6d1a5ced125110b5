"""Fields of a booster that make its children invalid; pure.

The operator checks them itself, because a cluster may have no admission webhook for boosters.
"""

from collections.abc import Iterator

from inferno_operator.controllers.boosters.booster import Booster, ModelBackend
from inferno_operator.controllers.boosters.convert.context import BoosterProblem


def problems(booster: Booster) -> tuple[BoosterProblem, ...]:
    """Return the invalid fields that a conversion does not check itself."""
    if not booster.spec.backends:
        return (BoosterProblem("spec.backends", "is missing"),)  # the original's schema allows that
    return tuple(
        BoosterProblem(f"spec.backends[{i}]{path}", text, backend.name)
        for i, backend in enumerate(booster.spec.backends)
        for path, text in (*_of_bounds(backend), *_of_images(backend), *_of_adapters(backend))
    )


def _of_bounds(backend: ModelBackend) -> Iterator[tuple[str, str]]:
    low, high = backend.min_replicas, backend.max_replicas
    if low > high:
        yield ".minReplicas", f"must be at most maxReplicas, which is {high}, not {low}"


def _of_images(backend: ModelBackend) -> Iterator[tuple[str, str]]:
    """Check the images of workers; the API server checks empty ones."""
    for j, worker in enumerate(backend.workers):
        if any(map(str.isspace, worker.image)):
            yield f".workers[{j}].image", f"must have no spaces, not {worker.image!r}"


def _of_adapters(backend: ModelBackend) -> Iterator[tuple[str, str]]:
    """Check that the names of adapters are unique, since an engine does not start otherwise."""
    names = [adapter.name for adapter in backend.lora_adapters]
    for j, name in enumerate(names):
        if name in names[:j]:
            yield f".loraAdapters[{j}].name", f"must be unique, but {name!r} is used before"
