"""The pods of each release of Kthena, as recorded, and how the release is found."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.resources.dialects import KTHENA, RELEASES, Dialect, Release
from tests.conftest import ROOT
from tests.unit.operator.controllers.boosters.making import (
    Manifest,
    backend,
    child,
    convert,
    disaggregated,
    engine,
    latest,
    manifest,
    pods,
    worker,
)

FACTS = yaml.safe_load((ROOT / "tests" / "data" / "kthena" / "pods.yaml").read_text())

DEVICES = {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "4"}}
MOONCAKE = {"kv-transfer-config": '{"kv_connector":"MooncakeConnector"}'}
BOUNDS = ("minReplicas", "maxReplicas")

OTHERWISE: dict[str, dict[object, object]] = {
    "interpreter": {"python": "python3"},  # some images have no python
    "devices": {2: 4},  # the limit is what the pod gets
    "cache": {"claim/": "/claim"},  # a mount path is absolute
    "ascend": {True: False},  # the pods ask for GPUs
}
"""What a release has, and what we have; pods of prefill and decode have labels in each."""


def dialect(release: str) -> Dialect:
    return replace(KTHENA, installed=RELEASES[release])


def booster(release: str, one: Manifest, **spec: Any) -> Booster:  # noqa: ANN401 - fields of a manifest
    """A booster in the form of a release, in a cluster that has the release."""
    if release == "v0.1":
        return read_booster(manifest(one, **spec), dialect(release))
    if RELEASES[release] >= Release.V1_0:
        one = {**{k: v for k, v in one.items() if k not in BOUNDS}, "replicas": 1}
    asked = {**manifest(), "spec": {"backend": one, **spec}}
    return read_booster(asked, dialect(release))


def servings(release: str) -> tuple[Manifest, Manifest]:
    """The servings of a backend on two pods, and of a disaggregated one."""
    many = backend(workers=[worker(pods=2, resources=DEVICES)], cacheURI="pvc://claim/")
    roles = [worker(role, resources=DEVICES, config=MOONCAKE) for role in ("prefill", "decode")]
    split = disaggregated(workers=roles)
    found = [convert(booster(release, one), KTHENA)[0] for one in (many, split)]
    return found[0], found[1]


@pytest.mark.parametrize("release", FACTS)
def test_the_pods_are_those_of_the_release_but_for_known_differences(release: str) -> None:
    many, split = servings(release)
    (role,) = many["spec"]["template"]["roles"]
    command = engine(many)["command"][2]
    (probe,) = {
        engine(many)["readinessProbe"]["initialDelaySeconds"],
        engine(split)["livenessProbe"]["initialDelaySeconds"],
    }

    found = {
        "probe": probe,
        "interpreter": command.partition(" -m vllm")[0].rpartition(" ")[2],
        "memory": "/dev/shm" in str(engine(many)["volumeMounts"]),  # noqa: S108 - of the pod
        "script": command.removeprefix("chmod u+x ").partition(" ")[0],
        "events": "--kv-events-config" in command,
        "devices": int(command.partition("--num-gpus=")[2].partition(" ")[0]),
        "cache": engine(many)["volumeMounts"][0]["mountPath"],
        "labels": "metadata" in role["workerTemplate"],
        "ascend": "Ascend910" in str(pods(split)),
        "packages": "pip install" in str(engine(split)["command"]),
    }

    assert found == {k: OTHERWISE.get(k, {}).get(v, v) for k, v in FACTS[release].items()}
    assert all("metadata" in r["entryTemplate"] for r in split["spec"]["template"]["roles"])


@pytest.mark.parametrize("release", [name for name in FACTS if FACTS[name]["packages"]])
def test_a_connector_is_installed_before_ray_starts(release: str) -> None:
    many = backend(workers=[worker(pods=2, resources=DEVICES, config=MOONCAKE)])

    command = engine(convert(booster(release, many), KTHENA)[0])["command"]

    assert command[2].startswith("pip install mooncake-transfer-engine && bash -c ")
    assert "multi-node-serving.sh leader" in command[2]


@pytest.mark.parametrize(
    ("fields", "installed", "release"),
    [
        ("backends", None, Release.V0_1),
        ("backends", Release.V0_4, Release.V0_1),
        ("bounds", None, Release.V0_4),
        ("bounds", Release.V0_1, Release.V0_2),
        ("bounds", Release.V0_3, Release.V0_3),
        ("bounds", Release.V1_0, Release.V0_4),
        ("replicas", None, Release.V1_0),
        ("replicas", Release.V0_2, Release.V1_0),
        ("replicas", Release.LATER, Release.LATER),
    ],
)
def test_the_fields_tell_the_release_and_a_setting_tells_what_they_leave_open(
    fields: str, installed: Release | None, release: Release
) -> None:
    one = backend()
    if fields == "replicas":
        one = {**{k: v for k, v in one.items() if k not in BOUNDS}, "replicas": 1}
    spec = {"backends": [one]} if fields == "backends" else {"backend": one}

    read = read_booster({**manifest(), "spec": spec}, replace(KTHENA, installed=installed))

    assert read.release == release


@pytest.mark.parametrize("release", FACTS)
@pytest.mark.parametrize("given", [None, "", "a-name"])
def test_requests_name_the_booster_and_after_v1_the_name_in_its_spec(
    release: str, given: str | None
) -> None:
    asked = booster(release, backend(), name=given)

    (route,) = (c for c in convert(asked, KTHENA) if c["kind"] == "ModelRoute")

    assert route["spec"]["modelName"] == (given or "m" if release == "later" else "m")
    assert route["metadata"]["name"] == "m"


GPU = {"limits": {"nvidia.com/gpu": "2"}}


def serving_of(**backend: object) -> Manifest:
    return child(latest(**backend), KTHENA.serving, "m-a")


def split(*, env: list[Manifest] | None = None, **fields: object) -> Manifest:
    """The serving of a disaggregated backend whose workers have these fields."""
    workers = [worker(role, **fields) for role in ("prefill", "decode")]
    return serving_of(**disaggregated(workers=workers, env=env or []))


def test_engines_have_three_minutes_to_load_their_model() -> None:
    alone, both = engine(serving_of()), engine(split())

    assert alone["readinessProbe"]["initialDelaySeconds"] == 180
    assert both["livenessProbe"]["initialDelaySeconds"] == 180
    assert both["readinessProbe"]["initialDelaySeconds"] == 5


def test_vllm_has_shared_memory() -> None:
    made = serving_of(workers=[worker(pods=2)])

    (role,) = made["spec"]["template"]["roles"]
    for template in (role["entryTemplate"], role["workerTemplate"]):
        (volume,) = (v for v in template["spec"]["volumes"] if v["name"] == "dshm")
        mounts = template["spec"]["containers"][-1]["volumeMounts"]
        assert volume["emptyDir"] == {"medium": "Memory"}
        assert {"name": "dshm", "mountPath": "/dev/shm"} in mounts  # noqa: S108 - of the pod
    assert "dshm" not in str(split())


def test_the_script_for_several_nodes_is_found_from_the_folder_of_the_image() -> None:
    made = serving_of(workers=[worker(pods=2)])

    (role,) = made["spec"]["template"]["roles"]
    others = role["workerTemplate"]["spec"]["containers"][0]
    for container in (engine(made), others):
        assert container["command"][2].startswith("chmod u+x examples/online_serving/multi-node")


def test_all_pods_have_labels_and_requests_go_to_the_first_ones() -> None:
    asked = latest(workers=[worker(pods=2)])
    (role,) = child(asked, KTHENA.serving, "m-a")["spec"]["template"]["roles"]
    selector = child(asked, KTHENA.server, "m-a")["spec"]["workloadSelector"]["matchLabels"]

    labels = role["workerTemplate"]["metadata"]["labels"]
    assert labels == role["entryTemplate"]["metadata"]["labels"]
    assert selector.items() - labels.items() == {("modelserving.volcano.sh/entry", "true")}


def test_pods_are_bound_to_nodes_by_their_affinity_alone() -> None:
    made = split(resources={"limits": {"huawei.com/ascend-1980": "1"}})

    assert "affinity" not in pods(made)


def test_no_engine_publishes_its_cache() -> None:
    assert "--kv-events-config" not in engine(serving_of())["command"]


@pytest.mark.parametrize(
    ("worker", "env", "installs"),
    [
        ({"config": MOONCAKE, "resources": GPU}, [], "mooncake-transfer-engine"),
        (
            {"config": {"kv-transfer-config": {"kv_connector": "NixlConnector"}}, "resources": GPU},
            [],
            "nixl",
        ),
        ({"config": MOONCAKE}, [], None),
        ({"resources": GPU}, [], None),
        (
            {"config": MOONCAKE, "resources": GPU},
            [{"name": "KTHENA_SKIP_ENGINE_DEPENDENCY_INSTALL", "value": "1"}],
            None,
        ),
    ],
    ids=["mooncake", "nixl", "no GPU", "no connector", "in the image"],
)
def test_what_a_connector_needs_is_installed_first(
    worker: Manifest, env: list[Manifest], installs: str | None
) -> None:
    command = engine(split(env=env, **worker))["command"]

    if installs is None:
        assert command[:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    else:
        assert command[:2] == ["bash", "-c"]
        assert command[2].startswith(f"pip install {installs} && python3 -m vllm")


def test_the_downloader_gets_the_settings_of_its_sources() -> None:
    env = [{"name": name, "value": "x"} for name in ("MS_TOKEN", "MS_REVISION", "OTHER")]

    (downloader,) = pods(serving_of(env=env))["initContainers"]

    assert [entry["name"] for entry in downloader["env"]] == ["MS_TOKEN", "MS_REVISION"]
