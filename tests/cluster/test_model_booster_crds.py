"""Definitions of Model Boosters and their children: control_plane, and those of the original."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.controllers.boosters.booster import ANNOTATION, read_booster
from inferno_operator.controllers.boosters.changes import holds
from inferno_operator.resources.dialects import DIALECTS, KTHENA, MATRIXINFER, Dialect
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.errors import ApiError
from tests.unit.operator.controllers.boosters.making import convert

DATA = ROOT / "tests/data/boosters"
KTHENA_DATA = ROOT.parent / "shared/conformance/kthena"
CASES = sorted((KTHENA_DATA / "cases/input").glob("*.yaml"))
EXAMPLES = sorted((KTHENA_DATA / "cases/examples").glob("*.yaml"))
SAMPLE = ROOT / "samples/model-booster"
BOOSTERS = ("two-backends", "disaggregated", "adapters")
REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
GOOD_BACKEND = {
    "name": "b",
    "type": "vLLM",
    "modelURI": "s3://m",
    "minReplicas": 1,
    "maxReplicas": 1,
    "workers": [{}],
}

Manifest = dict[str, Any]

shared = [
    pytest.mark.shared,
    pytest.mark.skipif(not KTHENA_DATA.is_dir(), reason="no recordings beside the project"),
]


pytestmark = pytest.mark.usefixtures("crds_installed", "boosters_installed")


def create(cluster: ControlPlane, *manifests: Manifest, namespace: str) -> None:
    """Create objects; the API server refuses those with fields that it does not know."""
    cluster.api.create(manifests, namespace)


def assert_accepted(cluster: ControlPlane, *manifests: Manifest, namespace: str) -> None:
    """Create objects; the API server stores each of them."""
    stored = cluster.api.create(manifests, namespace)

    assert [m["metadata"]["name"] for m in stored] == [m["metadata"]["name"] for m in manifests]


def refusal(cluster: ControlPlane, manifest: Manifest, *, namespace: str) -> str:
    """Why an object cannot be created."""
    with pytest.raises(ApiError) as refused:
        create(cluster, manifest, namespace=namespace)
    return str(refused.value)


def boosters(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def children(
    manifest: Manifest,
    namespace: str,
    dialect: Dialect = KTHENA,
    annotations: Mapping[str, str] | None = None,
) -> tuple[Manifest, ...]:
    names = {"name": manifest["metadata"]["name"], "namespace": namespace, "uid": "some-uid"}
    booster = {**manifest, "metadata": {**names, "annotations": annotations or {}}}
    return convert(read_booster(booster, dialect), dialect)


def in_matrixinfer(manifest: Manifest) -> Manifest:
    """The same booster for the forerunner, which calls it a Model."""
    kind = MATRIXINFER.booster
    spec = json.loads(json.dumps(manifest["spec"]))
    for backend in spec["backends"]:
        backend.pop("schedulerName", None)
    return {**manifest, "apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_api_server_has_no_warning_about_the_definitions(
    control_plane: ControlPlane, dialect: str
) -> None:
    folder = ROOT / "crds" / dialect

    said = control_plane.kubectl(
        "replace", "--dry-run=server", "--warnings-as-errors", "--filename", folder
    ).stdout

    assert said.count(" replaced (server dry run)\n") == len(list(folder.glob("*.yaml")))


def test_what_a_booster_may_say_is_accepted(control_plane: ControlPlane, namespace: str) -> None:
    assert_accepted(control_plane, *boosters(DATA / "accepted.yaml"), namespace=namespace)


def test_fields_of_later_releases_are_kept(control_plane: ControlPlane, namespace: str) -> None:
    manifests = boosters(DATA / "later.yaml")

    stored = control_plane.api.create(manifests, namespace)

    kept = [holds(m["spec"], s["spec"]) for m, s in zip(manifests, stored, strict=True)]
    assert kept == [True] * len(manifests)


def test_the_sample_applies(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("apply", "--namespace", namespace, "--kustomize", SAMPLE)

    assert len(control_plane.items(str(KTHENA.booster), namespace)) == len(BOOSTERS)


@pytest.mark.parametrize(
    ("part", "case"), [(part, case) for part, cases in REFUSED.items() for case in cases]
)
def test_what_makes_no_sense_is_refused(control_plane: ControlPlane, part: str, case: str) -> None:
    change, answer = REFUSED[part][case].values()
    backends = [{**GOOD_BACKEND, **(change if part == "backend" else {})}]
    spec = {"backends": backends, **(change if part == "spec" else {})}

    assert answer in refusal(control_plane, good(spec), namespace="default")


def good(spec: Manifest) -> Manifest:
    return {
        "apiVersion": KTHENA.booster.api_version,
        "kind": KTHENA.booster.kind,
        "metadata": {"name": "good"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def test_the_good_booster_of_these_tests_is_accepted(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert_accepted(control_plane, good({"backends": [GOOD_BACKEND]}), namespace=namespace)


@pytest.mark.parametrize("name", BOOSTERS)
def test_the_children_of_a_sample_are_accepted(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    (manifest,) = boosters(SAMPLE / f"{name}.yaml")

    assert_accepted(control_plane, *children(manifest, namespace), namespace=namespace)


@pytest.mark.parametrize("name", BOOSTERS)
def test_the_children_of_a_model_of_matrixinfer_are_accepted(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    (manifest,) = boosters(SAMPLE / f"{name}.yaml")
    model = in_matrixinfer(manifest)

    assert_accepted(control_plane, model, namespace=namespace)
    assert_accepted(control_plane, *children(model, namespace, MATRIXINFER), namespace=namespace)


def test_a_gang_policy_stays_and_cannot_change(control_plane: ControlPlane, namespace: str) -> None:
    (manifest,) = boosters(SAMPLE / "adapters.yaml")
    gangs = {f"{ANNOTATION}gang-scheduling": "true"}
    serving, *_ = children(manifest, namespace, annotations=gangs)
    create(control_plane, serving, namespace=namespace)
    name = serving["metadata"]["name"]

    for change in ({"minRoleReplicas": {"leader": 5}}, None):
        patch = {"spec": {"template": {"gangPolicy": change}}}
        with pytest.raises(ApiError, match=r"is immutable|is required|cannot"):
            control_plane.patch(str(KTHENA.serving), name, patch, namespace)


def test_the_api_fills_in_where_metrics_are_and_how_fast_replicas_change(
    control_plane: ControlPlane, namespace: str
) -> None:
    (manifest,) = boosters(SAMPLE / "disaggregated.yaml")
    made = children(manifest, namespace)
    create(control_plane, *made, namespace=namespace)
    (policy,) = control_plane.items(str(KTHENA.policy), namespace)
    (binding,) = control_plane.items(str(KTHENA.binding), namespace)

    endpoint = binding["spec"]["scalingConfiguration"]["target"]["metricEndpoint"]
    assert endpoint == {"uri": "/metrics", "port": 8100}
    assert policy["spec"]["behavior"]["scaleDown"]["instances"] == 1
    assert policy["spec"]["behavior"]["scaleUp"]["panicPolicy"]["panicThresholdPercent"] == 200


class TestRecordings:
    """What lies beside the project."""

    pytestmark = shared

    @pytest.mark.parametrize("path", [*CASES, *EXAMPLES], ids=lambda path: path.stem)
    def test_our_definitions_accept_the_children(
        self, control_plane: ControlPlane, namespace: str, path: Path
    ) -> None:
        (manifest,) = boosters(path)
        made = children(manifest, namespace)

        assert_accepted(control_plane, *made, namespace=namespace)

    @pytest.mark.parametrize(
        ("name", "answer"),
        [
            ("input/model", "has a minReplicas of at least 1"),
            ("input/multi-backends-model", "needs the scalingCost of each backend"),
            ("input/pd-disaggregated-model", "minReplicas and maxReplicas are equal"),
            ("examples/Qwen2.5-Coder-32B-Instruct", "minReplicas and maxReplicas are equal"),
        ],
    )
    def test_our_definition_refuses_what_the_admission_of_the_original_is_to_refuse(
        self, control_plane: ControlPlane, namespace: str, name: str, answer: str
    ) -> None:
        (manifest,) = boosters(KTHENA_DATA / f"cases/{name}.yaml")
        manifest["metadata"] = {"name": manifest["metadata"]["name"]}

        refused = refusal(control_plane, manifest, namespace=namespace)

        assert answer in refused

    def test_our_definition_takes_what_is_fine_once_defaults_are_filled_in(
        self, control_plane: ControlPlane, namespace: str
    ) -> None:
        (manifest,) = boosters(KTHENA_DATA / "cases/examples/Deepseek-R1-Distill-llama-8B.yaml")

        assert_accepted(control_plane, manifest, namespace=namespace)
