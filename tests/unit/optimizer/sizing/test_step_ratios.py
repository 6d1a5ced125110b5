"""The ratios of the chain of generation 4, and how much work it is to size a replica by them."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.demands import Demands
from inferno_optimizer.sizing.limits import MOST_FALL
from inferno_optimizer.sizing.pairs import build_pairs, sorted_types
from inferno_optimizer.sizing.performance import PerformanceModel
from inferno_optimizer.sizing.queueing import Averages, FloatArray, IntArray
from inferno_optimizer.sizing.rates import size
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.wire.codec import decode_system
from tests.generate import JsonObject, fleet, of_generation, with_different_lengths
from tests.tiers import extended
from tests.unit.optimizer.sizing.test_step_model import latencies_at, wild


@pytest.mark.parametrize("share", [0.5, *extended(1e-3, 0.999, 3.0)])
def test_ratios_are_those_of_the_law_of_steps(share: float) -> None:
    model, states = wild(200), np.arange(1.0, 301.0)[:, None]
    highest = model.batch / model.full_ms
    rate = np.minimum(share, 1.0) * highest
    step, _ = model.step_ms(states, rate)
    stay = model.stay_ms(states, rate, step)
    index, mean = model.index(states, step), share * highest * stay

    found = model.log_ratios(share * highest)(slice(0, 200), states)

    centred = np.clip(index, 1.0, 3.0)
    law = np.log((mean + (states - 1.0) * (centred - 1.0)) / (states * centred)) * centred / index
    assert found == pytest.approx(law, rel=1e-11, abs=1e-11)


@dataclass(frozen=True, slots=True)
class Counted:
    """A model that counts the replicas whose averages are computed."""

    model: Any
    rows: list[int]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what the model has
        return getattr(self.model, name)

    def take(self, rows: IntArray) -> "Counted":
        """Some of the rows, which are counted too."""
        return Counted(self.model.take(rows), self.rows)

    def averages(self, arrival_rate: FloatArray) -> Averages:
        """The averages of the model, counted."""
        self.rows.append(len(arrival_rate))
        found: Averages = self.model.averages(arrival_rate)
        return found


def with_long_prompts(document: JsonObject) -> JsonObject:
    """Prompts of four to twelve budgets, and targets for them."""
    for place, server in enumerate(document["system"]["serverData"]["servers"]):
        server["currentAlloc"]["load"]["avgInTokens"] = 8192 + place * 997 % 16384
    for service_class in document["system"]["serviceClassData"]["serviceClasses"]:
        for target in service_class["modelTargets"]:
            target["slo-ttft"] *= 20
            target["slo-itl"] *= 2
    return document


@pytest.mark.parametrize(("long", "most"), [(False, 3.2), (True, 4.5)], ids=["short", "long"])
def test_replicas_are_evaluated_a_few_times_to_know_their_number(long: bool, most: float) -> None:
    """At the lowest rate, at one that their number follows from, and a few of them at others."""
    document = with_different_lengths(fleet(60, 20, 1, 1.0))
    document = of_generation(document, 4)
    system = decode_system(with_long_prompts(document) if long else document)
    catalogue = Catalogue(system.by_name())
    cases = [case for case in map(catalogue.case, system.servers) if isinstance(case, Case)]
    pairs = build_pairs(catalogue, cases, sorted_types(catalogue.system))
    (group,) = pairs.groups
    order = np.argsort(-group.replicas.model.batch, kind="stable")
    counted = Counted(group.replicas.model.take(order), [])
    replicas = Replicas(cast("PerformanceModel", counted), group.replicas.limits.take(order))

    size(replicas, Demands(pairs.demand[group.rows[order]], np.arange(len(order))))

    assert sum(counted.rows) <= most * len(order)
    assert len(counted.rows) <= 20


@pytest.mark.parametrize("percentile", [95.0, *extended(0.0, 99.0)])
def test_no_latency_falls_so_far_that_lower_rates_would_have_to_be_tried_for_it(
    percentile: float,
) -> None:
    model = wild(400)
    peaks = [np.zeros(400), np.zeros(400)]

    for share in np.geomspace(0.002, 0.999, 40):
        for place, found in enumerate(
            latencies_at(model, share * model.batch / model.full_ms, percentile)
        ):
            peaks[place] = np.maximum(peaks[place], found)
            assert (peaks[place] < 0.8 * MOST_FALL * found).all()
