from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.resources import API_VERSION, SYSTEM_RESOURCES, Server, parse

SAMPLES = Path(__file__).parents[4] / "samples"
TRACES = "traces"
"""Loads to replay, no objects."""

WVA = "wva"
"""Objects of another autoscaler."""

CATALOGUE = "catalogue"
"""The config.json of a model."""

STUDIES = "studies"
"""Replays side by side, and the fleet of one."""

POLICIES = "policies"
"""Policies of other autoscalers, for replays."""

FOLDERS = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())
NAMES = [name for name in FOLDERS if name not in (TRACES, WVA, CATALOGUE, STUDIES, POLICIES)]


def manifests(sample: str) -> list[dict[str, Any]]:
    """Those of our own kinds; a sample may have ModelBoosters besides."""
    folder = SAMPLES / sample
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return [
        manifest
        for name in kustomization["resources"]
        for manifest in yaml.safe_load_all((folder / name).read_text())
        if manifest["apiVersion"] == API_VERSION
    ]


def test_the_samples_are_those_that_the_documentation_names() -> None:
    own = ["apart", "cached", "episode", "fleet", "measured", "model-booster", "small"]
    own += ["three-models", "troubles"]

    assert sorted((*own, TRACES, WVA, CATALOGUE, STUDIES, POLICIES)) == FOLDERS


@pytest.mark.parametrize("sample", NAMES)
def test_a_kustomization_lists_all_files_of_its_folder(sample: str) -> None:
    folder = SAMPLES / sample
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}

    assert set(kustomization["resources"]) == files


@pytest.mark.parametrize("sample", NAMES)
def test_a_sample_comes_back_unchanged_from_the_models(sample: str) -> None:
    for manifest in manifests(sample):
        assert parse(manifest).to_json() == manifest


@pytest.mark.parametrize("sample", NAMES)
def test_a_sample_has_all_kinds_and_leaves_the_namespace_open(sample: str) -> None:
    resources = [parse(manifest) for manifest in manifests(sample)]

    assert {type(resource) for resource in resources} == set(SYSTEM_RESOURCES)
    assert {resource.metadata.namespace for resource in resources} == {""}


def test_servers_that_are_measured_have_no_load_of_a_person() -> None:
    """The guide says to leave it out: the operator writes what it measures."""
    servers = [parse(item) for item in manifests("measured") if item["kind"] == "Server"]

    assert servers
    for server in servers:
        assert isinstance(server, Server)
        assert server.spec.measure is not None
        assert server.spec.current_alloc is not None
        assert server.spec.current_alloc.load is None
