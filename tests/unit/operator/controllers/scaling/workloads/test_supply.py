"""The cards of Servers whose replicas the workloads of others must leave alone."""

from collections import Counter

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.scaled_server import Supply
from inferno_operator.resources import Server, parse
from inferno_operator.resources.observation import readable
from tests.unit.operator import objects

STEPS = {"alpha": 9, "kappa": 0.00006, "delta": 0.02, "ahead": 1, "budget": 8192}


def supply() -> Supply:
    """A replica that does both has 8 cards, one for prompts 2, and one for answers 4."""
    counts = {"Both": 8, "Prefill": 2, "Decode": 4}
    data = [
        {**objects.performance("A", stepParms=STEPS), "role": role, "accCount": count}
        for role, count in counts.items()
    ]
    found = [objects.accelerator("A"), objects.model("M", data)]
    return Supply(build_system(readable(map(objects.observed, found))).system)


def roles(prefill: int, decode: int) -> objects.Manifest:
    parts = {"prefill": prefill, "decode": decode}
    each = {role: {"accelerator": "A", "numReplicas": n} for role, n in parts.items()}
    return {"accelerator": "A", "numReplicas": prefill + decode, "roles": each}


def test_the_more_of_what_runs_and_what_was_decided_counts_in_each_role() -> None:
    runs, decided = roles(prefill=3, decode=1), roles(prefill=1, decode=2)
    apart = parse(objects.server(spec={"currentAlloc": runs, "desiredAlloc": decided}))
    whole = {"accelerator": "A", "numReplicas": 2}
    moves = parse(objects.server(spec={"currentAlloc": whole, "desiredAlloc": decided}))
    assert isinstance(apart, Server)
    assert isinstance(moves, Server)

    assert supply().count_cards(apart) == Counter(T=3 * 2 + 2 * 4)
    assert supply().count_cards(moves) == Counter(T=2 * 8 + 1 * 2 + 2 * 4)
