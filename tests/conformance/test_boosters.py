"""Children of ModelBoosters as the original's own test data have them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.controllers.boosters.booster import read_booster
from inferno_operator.controllers.boosters.changes import decide
from inferno_operator.controllers.boosters.convert.children import convert
from inferno_operator.controllers.boosters.status import Report, status_of
from inferno_operator.resources.dialects import KTHENA

KTHENA_DATA = Path(__file__).parents[2].parent / "shared" / "conformance" / "kthena"
CASES = KTHENA_DATA / "cases"

PAIRS = {
    ("cases", "model-serving"): "model",
    ("cases", "model-route"): "model",
    ("cases", "scaling-asp-binding"): "model",
    ("cases", "model-route-subset"): "multi-backends-model",
    ("cases", "optimize-asp"): "multi-backends-model",
    ("cases", "pd-model-server"): "pd-disaggregated-model",
    ("cases-v0.4.0", "model-serving"): "model",
    ("cases-v0.4.0", "disaggregated-model-serving"): "pd-disaggregated-model-npu",
    ("cases-v0.4.0", "scaling-asp"): "model",
    ("cases-v0.4.0", "scaling-asp-binding"): "model",
    ("cases-v1.0.0", "model-serving"): "model",
    ("cases-v1.0.0", "model-route"): "model",
    ("cases-v1.0.0", "disaggregated-model-serving-mooncake"): "pd-disaggregated-model-mooncake",
}
"""Each expected child of a release (v0.1.0 has no suffix), and the booster that it is made of."""

RENAMED = {"scaling-asp"}
"""Objects whose names the data have otherwise than the binding that refers to them."""

UNKNOWN = {"metricFrom", "status"}
"""Keys of the data that no schema has, or no controller of boosters writes."""

REVISION = KTHENA.label("revision")

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CASES.is_dir(), reason="no recordings beside the project"),
]


def read(folder: str, name: str, cases: str = "cases") -> Any:  # noqa: ANN401 - YAML of any shape
    return yaml.safe_load((KTHENA_DATA / cases / folder / f"{name}.yaml").read_text())


def plain(value: object) -> object:
    """The value without what is empty, and without what may be said in several ways."""
    if isinstance(value, dict):
        return dict(_fields(value))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _fields(fields: dict[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in fields.items():
        if key in UNKNOWN or value in (None, "", [], {}):
            continue
        if key == REVISION:
            yield key, "some"
        elif key == "preStop":
            yield key, "some script"
        elif key == "targetValue":
            yield key, str(value)
        else:
            inner = plain(value)
            if inner != {}:
                yield key.replace("envfrom", "envFrom"), inner


@pytest.mark.parametrize(("cases", "name"), PAIRS)
def test_a_child_is_the_one_of_the_original(cases: str, name: str) -> None:
    expected = read("expected", name, cases)
    booster = read_booster(read("input", PAIRS[cases, name], cases), KTHENA)

    children = convert(booster, KTHENA, strict=True)

    found = [
        child
        for child in children
        if child["kind"] == expected["kind"]
        and (name in RENAMED or child["metadata"]["name"] == expected["metadata"]["name"])
    ]
    assert len(found) == 1
    if name in RENAMED:
        found[0]["metadata"] = expected["metadata"]
    if expected["kind"] == "AutoscalingPolicy":
        del found[0]["spec"]["behavior"]  # empty in Go; there it is a matter of the wire
    assert plain(found[0]) == plain(expected)


def test_the_revision_is_the_same_on_object_and_pods() -> None:
    serving, *_ = convert(read_booster(read("input", "model"), KTHENA), KTHENA, strict=True)

    entry = serving["spec"]["template"]["roles"][0]["entryTemplate"]
    assert serving["metadata"]["labels"][REVISION] == entry["metadata"]["labels"][REVISION]


def test_all_pairs_are_replayed() -> None:
    files = KTHENA_DATA.glob("cases*/expected/*.yaml")

    assert {(path.parts[-3], path.stem) for path in files} == set(PAIRS)


def test_node_selectors_and_tolerations_of_the_latest_release_convert() -> None:
    manifest = read("input", "model-with-nodeselector-tolerations", "cases-v1.0.0")
    serving, *_ = convert(read_booster(manifest, KTHENA), KTHENA)

    (role,) = serving["spec"]["template"]["roles"]
    (worker,) = manifest["spec"]["backend"]["workers"]
    assert role["entryTemplate"]["spec"]["tolerations"] == worker["tolerations"]


@pytest.mark.parametrize(
    ("folder", "name", "count", "told"),
    [
        (
            "input",
            "model",
            5,
            ["spec.backends[0].minReplicas should be at least 1 with an autoscalingPolicy"],
        ),
        (
            "input",
            "multi-backends-model",
            7,
            [
                "spec.backends should have a minReplicas of at least 1 in all",
                "spec.backends[0].scalingCost is missing and counts as 0",
                "spec.backends[1].scalingCost is missing and counts as 0",
            ],
        ),
        (
            "input",
            "pd-disaggregated-model",
            3,
            ["spec.backends[0].maxReplicas has no effect without an autoscalingPolicy"],
        ),
        (
            "examples",
            "Deepseek-R1-Distill-llama-8B",
            5,
            ["spec.backends[0].name makes 'deepseek-r1-distill-llama-8b-"],
        ),
        (
            "examples",
            "Qwen2.5-Coder-32B-Instruct",
            3,
            ["spec.backends[0].maxReplicas has no effect without an autoscalingPolicy"],
        ),
    ],
)
def test_a_recorded_booster_converts_and_its_condition_tells_what_is_odd(
    folder: str, name: str, count: int, told: list[str]
) -> None:
    manifest = read(folder, name)
    metadata = {"uid": "some", "namespace": "default", **manifest["metadata"]}
    booster = read_booster({**manifest, "metadata": metadata}, KTHENA)

    decided = decide(booster, [], KTHENA)
    report = Report(invalid=[str(problem) for problem in decided.invalid])
    status = status_of(booster, [], KTHENA, report, datetime(2026, 3, 1, tzinfo=UTC))

    assert len(decided.applies) == count
    assert decided.problems == ()
    (valid,) = (each for each in status["conditions"] if each["type"] == "Valid")
    assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
    lines = valid["message"].splitlines()
    assert all(line.startswith(text) for line, text in zip(lines, told, strict=True))
