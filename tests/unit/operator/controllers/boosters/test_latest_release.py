"""Children of boosters of Kthena v1.0.0, where they differ from those of v0.1.0."""

import pytest

from inferno_operator.resources.dialects import KTHENA
from tests.unit.operator.controllers.boosters.making import (
    Manifest,
    child,
    disaggregated,
    engine,
    latest,
    pods,
    worker,
)

GPU = {"limits": {"nvidia.com/gpu": "2"}}
MOONCAKE = {"kv-transfer-config": '{"kv_connector":"MooncakeConnector"}'}


def serving(**backend: object) -> Manifest:
    return child(latest(**backend), KTHENA.serving, "m-a")


def split(*, env: list[Manifest] | None = None, **fields: object) -> Manifest:
    """The serving of a disaggregated backend whose workers have these fields."""
    workers = [worker(role, **fields) for role in ("prefill", "decode")]
    return serving(**disaggregated(workers=workers, env=env or []))


def test_engines_have_three_minutes_to_load_their_model() -> None:
    alone, both = engine(serving()), engine(split())

    assert alone["readinessProbe"]["initialDelaySeconds"] == 180
    assert both["livenessProbe"]["initialDelaySeconds"] == 180
    assert both["readinessProbe"]["initialDelaySeconds"] == 5


def test_vllm_has_shared_memory() -> None:
    made = serving(workers=[worker(pods=2)])

    (role,) = made["spec"]["template"]["roles"]
    for template in (role["entryTemplate"], role["workerTemplate"]):
        (volume,) = (v for v in template["spec"]["volumes"] if v["name"] == "dshm")
        mounts = template["spec"]["containers"][-1]["volumeMounts"]
        assert volume["emptyDir"] == {"medium": "Memory"}
        assert {"name": "dshm", "mountPath": "/dev/shm"} in mounts  # noqa: S108 - of the pod
    assert "dshm" not in str(split())


def test_the_script_for_several_nodes_is_found_from_the_folder_of_the_image() -> None:
    made = serving(workers=[worker(pods=2)])

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
    assert "--kv-events-config" not in engine(serving())["command"]


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

    (downloader,) = pods(serving(env=env))["initContainers"]

    assert [entry["name"] for entry in downloader["env"]] == ["MS_TOKEN", "MS_REVISION"]
