"""What is said of an object before it is stored is what its conditions would say."""

import pytest

from inferno_operator.controllers.planning.mistakes import SMALL_KINDS, find_mistakes
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.planning.updates import plan_updates
from inferno_operator.resources.observation import Observation, readable
from inferno_optimizer.optimize import optimize
from tests.cluster.scene import objects_of_sample
from tests.unit.operator import objects
from tests.wrong_objects import FLEET, MISTAKES, Manifest


def observed(manifest: Manifest, minute: int = 0) -> Observation:
    metadata = {**manifest["metadata"], "creationTimestamp": objects.born(minute)}
    return objects.observed({**manifest, "metadata": metadata})


WRONG = {what: observed(manifest, minute=1) for what, manifest in MISTAKES.items()}
EVERYTHING = [*map(observed, FLEET), *WRONG.values()]
SMALL = [observation for observation in EVERYTHING if observation.kind in SMALL_KINDS]


def said(manifest: Manifest, *others: Manifest) -> list[str]:
    found = [o for o in map(observed, others) if o.kind in SMALL_KINDS]
    return [verdict.message for verdict in find_mistakes(observed(manifest, 1), found)]


@pytest.fixture(scope="module")
def planned() -> dict[str, list[str]]:
    """What the conditions of all objects say is wrong after a plan, by their names."""
    snapshot = build_system(readable(EVERYTHING))
    updates = plan_updates(EVERYTHING, snapshot, optimize(snapshot.system))
    return {
        str(update.reference): [
            verdict.message
            for verdict in update.verdicts
            if (verdict.type, verdict.holds) in {("Ready", False), ("Warnings", True)}
        ]
        for update in updates
    }


@pytest.mark.parametrize("what", MISTAKES)
def test_the_words_are_those_of_the_conditions(what: str, planned: dict[str, list[str]]) -> None:
    words = [verdict.message for verdict in find_mistakes(WRONG[what], SMALL)]

    assert words
    assert words == planned[str(WRONG[what].reference)]


@pytest.mark.parametrize("step", [1, -1])
def test_what_is_right_is_applied_in_any_order_without_a_word(step: int) -> None:
    manifests = objects_of_sample("fleet")[::step]

    told = {
        (manifest["kind"], manifest["metadata"]["name"]): said(manifest, *manifests[:number])
        for number, manifest in enumerate(manifests)
    }

    assert {place: words for place, words in told.items() if words} == {}


def test_a_model_is_looked_at_though_there_is_no_class_yet() -> None:
    accelerators = [manifest for manifest in FLEET if manifest["kind"] != "ServiceClass"]

    assert said(MISTAKES["model misspelt"], *accelerators) == [
        "model: no model with performance data is named 'granite-13'; did you mean granite-13b?"
    ]
    assert said(MISTAKES["class misspelt"], *accelerators) == []


def test_a_server_that_is_measured_needs_no_load_but_right_names() -> None:
    measure = {"source": "vLLM", "labels": {"app": "s"}}
    right = objects.server("S", spec={"class": "Gold", "model": "granite-13b", "measure": measure})
    del right["spec"]["currentAlloc"]
    wrong = {**right, "spec": {**right["spec"], "model": "granite"}}

    assert said(right, *FLEET) == []
    assert said(wrong, *FLEET)[0].startswith("model: no model with performance data is named")


def test_nothing_is_said_of_cards_that_are_not_counted_yet() -> None:
    nodes = objects.manifest("Capacity", {"fromNodes": True}, name="nodes")

    assert said(MISTAKES["cards that no Capacity lists"], *FLEET)
    assert said(MISTAKES["cards that no Capacity lists"], *FLEET, nodes) == []


def test_a_second_optimizer_at_an_interval_is_told_who_optimizes() -> None:
    first, second = (objects.optimizer(name, optimize=False) for name in ("first", "second"))
    for each in (first, second):
        each["spec"]["interval"] = 60

    assert said(first) == []
    assert said(second, first)[0].startswith("Optimizer 'first' already optimizes this namespace")


def test_an_object_is_not_compared_with_what_it_was_before() -> None:
    right, renamed = objects.accelerator("A"), objects.accelerator("A", cost=0)

    assert said(renamed, right) == said(renamed)
