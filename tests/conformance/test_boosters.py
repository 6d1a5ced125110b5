"""Children of ModelBoosters as the original's own test data have them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from inferno_operator.controllers.boosters.booster import read_booster
from inferno_operator.controllers.boosters.changes import plan_changes
from inferno_operator.controllers.boosters.status import Report, status_of
from inferno_operator.resources.dialects import KTHENA
from tests.unit.operator.controllers.boosters.making import convert

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


class Difference(NamedTuple):
    """What a child of ours has otherwise: values at a place, where None means nothing."""

    place: str
    original: object
    ours: object


MANAGER = "registry.volcano.sh"
ROLE = "spec/template/roles/*"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"modelserving.volcano.sh/name": "test-model"}},
}
KNOWN = (
    # The documentation of Kthena has the second label, too.
    Difference(f"*/labels/{MANAGER}/managed-by", None, MANAGER),
    # Kubernetes allows one controller of an object: nobody else adopts it.
    Difference("metadata/ownerReferences/0/controller", None, True),
    Difference("metadata/ownerReferences/0/blockOwnerDeletion", None, True),
    # Gangs are asked for by an annotation; a policy with 0 replicas waits for nobody.
    Difference("spec/template/gangPolicy", {"minRoleReplicas": {"leader": 0}}, None),
    Difference("spec/template/gangPolicy", {"minRoleReplicas": {"prefill": 1, "decode": 1}}, None),
    # A group without replicas serves nobody.
    Difference(f"{ROLE}/replicas", 0, 1),
    # A hash of the whole backend rolls pods out where only its replicas or weights change.
    Difference(f"{ROLE}/*Template/metadata/labels/{KTHENA.label('revision')}", "some", None),
    # No pod has the label that these constraints select.
    Difference("spec/topologySpreadConstraints", [SPREAD], None),
    # Metrics are at the port of the sidecar.
    Difference("spec/scalingConfiguration/target/metricEndpoint", None, {"port": 8900}),
    Difference("spec/homogeneousTarget/target/metricEndpoint/port", None, 8900),
    # A server selects the pods of its backend, and not those of all backends.
    Difference(
        f"spec/workloadSelector/matchLabels/{KTHENA.label('backend-name')}",
        None,
        "ds-r1-qwen-7b-pd",
    ),
    # The sidecar of prefill reads the secrets that the sidecar of decode reads.
    Difference(
        f"{ROLE}/entryTemplate/spec/containers/0/envFrom",
        None,
        [{"secretRef": {"name": "downloader-secrets"}}],
    ),
    # Some images have no python.
    Difference(f"{ROLE}/entryTemplate/spec/containers/1/command/*", "python", "python3"),
)
"""What is known to differ, and why."""

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


def _fields(fields: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in fields.items():
        if key in UNKNOWN or value in (None, "", [], {}):
            continue
        if key == REVISION:
            yield key, "some"
        elif key == "preStop":
            yield key, "some script"
        elif key == "targetValue":
            yield key, str(value)
        elif key == "command":  # ours quotes words for the shell
            yield key, [word.replace("'", "") for part in value for word in str(part).split()]
        else:
            inner = plain(value)
            if inner != {}:
                yield key.replace("envfrom", "envFrom"), inner


def differences(original: object, ours: object, place: str = "") -> Iterator[Difference]:
    """Where a child differs from that of the original."""
    if isinstance(original, dict) and isinstance(ours, dict):
        keys: Iterable[object] = original.keys() | ours.keys()
        pairs = [(key, original.get(key), ours.get(key)) for key in keys]
    elif isinstance(original, list) and isinstance(ours, list) and len(original) == len(ours):
        pairs = list(zip(range(len(ours)), original, ours, strict=True))
    else:
        if original != ours:
            yield Difference(place, original, ours)
        return
    for key, one, other in pairs:
        yield from differences(one, other, f"{place}/{key}" if place else str(key))


def is_known(found: Difference, known: Difference) -> bool:
    return fnmatchcase(found.place, known.place) and found[1:] == known[1:]


def found_differences(cases: str, name: str) -> list[Difference]:
    expected = read("expected", name, cases)
    booster = read_booster(read("input", PAIRS[cases, name], cases), KTHENA)
    (found,) = (
        child
        for child in convert(booster, KTHENA)
        if child["kind"] == expected["kind"]
        and (name in RENAMED or child["metadata"]["name"] == expected["metadata"]["name"])
    )
    if name in RENAMED:
        found["metadata"] = expected["metadata"]
    if expected["kind"] == "AutoscalingPolicy":
        del found["spec"]["behavior"]  # empty in Go; there it is a matter of the wire
    return list(differences(plain(expected), plain(found)))


@pytest.mark.parametrize(("cases", "name"), PAIRS)
def test_a_child_is_the_one_of_the_original_but_for_known_differences(
    cases: str, name: str
) -> None:
    found = found_differences(cases, name)

    assert [each for each in found if not any(is_known(each, known) for known in KNOWN)] == []


def test_each_known_difference_is_there() -> None:
    found = [each for pair in PAIRS for each in found_differences(*pair)]

    assert [known for known in KNOWN if not any(is_known(each, known) for each in found)] == []


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

    decided = plan_changes(booster, [], KTHENA)
    report = Report(invalid=[str(problem) for problem in decided.invalid])
    status = status_of(booster, [], KTHENA, report, datetime(2026, 3, 1, tzinfo=UTC))

    assert len(decided.applies) == count
    assert decided.problems == ()
    (valid,) = (each for each in status["conditions"] if each["type"] == "Valid")
    assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
    lines = valid["message"].splitlines()
    assert all(line.startswith(text) for line, text in zip(lines, told, strict=True))
