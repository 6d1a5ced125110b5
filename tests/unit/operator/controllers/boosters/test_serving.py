"""From a backend to its ModelServing, where the original fails its user (design 9)."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from inferno_operator.controllers.boosters.conversion import ConversionError
from inferno_operator.controllers.boosters.serving import flags
from inferno_operator.resources.dialects import KTHENA, MATRIXINFER, Dialect
from tests.unit.operator.controllers.boosters.making import (
    FACTS,
    METRICS,
    UID,
    Manifest,
    asking,
    backend,
    booster,
    child,
    convert,
    disaggregated,
    engine,
    pods,
    worker,
)

REVISION = KTHENA.label("revision")
SQL = {"name": "sql", "artifactURL": "hf://example/sql"}


def serving(*backends: Manifest, **spec: Any) -> Manifest:  # noqa: ANN401 - of a manifest
    return child(booster(*backends, **spec), KTHENA.serving, "m-a")


@pytest.mark.parametrize(
    ("changed", "spec"),
    [
        (backend(replicas=5), {}),
        (backend(routeWeight=7), {}),
        (backend(maxReplicas=4, autoscalingPolicy=METRICS), {}),
        (backend(scalingCost=9), {"autoscalingPolicy": METRICS}),
        (backend(scaleToZeroGracePeriod="60s"), {}),
    ],
    ids=["replicas", "weight", "policy and bounds", "cost", "grace"],
)
def test_what_is_not_about_pods_changes_neither_pods_nor_revision(
    changed: Manifest, spec: Manifest
) -> None:
    before, after = serving(backend()), serving(changed, **spec)

    assert after["spec"]["template"] == before["spec"]["template"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


@pytest.mark.parametrize(
    "change",
    [
        {"workers": [worker(image="engine:2")]},
        {"env": [{"name": "A", "value": "b"}]},
        {"loraAdapters": [SQL]},  # not loaded into engines that run: left out on purpose
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_pods_are_made_of_changes_the_revision(change: Manifest) -> None:
    before, after = serving(backend()), serving(backend(**change))

    assert after["metadata"]["labels"][REVISION] != before["metadata"]["labels"][REVISION]


def test_pods_have_no_revision_of_ours() -> None:
    role = serving()["spec"]["template"]["roles"][0]

    assert REVISION not in role["entryTemplate"]["metadata"]["labels"]


@pytest.mark.parametrize("dialect", [KTHENA, MATRIXINFER], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("one", [backend(), disaggregated()], ids=["vLLM", "disaggregated"])
def test_first_pods_of_all_roles_can_be_found(one: Manifest, dialect: Dialect) -> None:
    asked = booster(one, dialect=dialect)
    selector = child(asked, dialect.server, "m-a", dialect)["spec"]["workloadSelector"]

    for role in child(asked, dialect.serving, "m-a", dialect)["spec"]["template"]["roles"]:
        labels = role["entryTemplate"]["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()


def test_backends_have_pods_of_their_own() -> None:
    asked = booster(backend("a"), backend("b"))
    selectors = [
        child(asked, KTHENA.server, name)["spec"]["workloadSelector"]["matchLabels"]
        for name in ("m-a", "m-b")
    ]

    assert selectors[0] != selectors[1]
    assert {KTHENA.label("model-uid"), KTHENA.label("backend-name")} == set(selectors[0])


def test_a_worker_without_a_config_has_no_flags_of_its_own() -> None:
    command = engine(serving())["command"]

    assert command[3:] == ["--model", command[4], "--kv-events-config", command[-1]]
    assert child(booster(), KTHENA.server, "m-a")["spec"]["model"] == "m"


@pytest.mark.parametrize(
    ("given", "replicas", "others"),
    [({}, 1, 0), ({"pods": 0}, 1, 0), ({"pods": 3}, 1, 2), ({"replicas": 0}, 0, 0)],
)
def test_what_a_worker_does_not_say_is_one(given: Manifest, replicas: int, others: int) -> None:
    role = serving(backend(workers=[worker(**given)]))["spec"]["template"]["roles"][0]

    assert (role["replicas"], role["workerReplicas"]) == (replicas, others)


@pytest.mark.parametrize(
    ("uri", "source", "mount"),
    [
        (None, {"emptyDir": {}}, {"mountPath": "/cache"}),
        (
            "pvc://claim",
            {"persistentVolumeClaim": {"claimName": "claim"}},
            {"mountPath": "/claim"},
        ),
        (
            "pvc://claim/some/where/",
            {"persistentVolumeClaim": {"claimName": "claim"}},
            {"mountPath": "/claim", "subPath": "some/where"},
        ),
        (
            "hostpath://data/x",
            {"hostPath": {"path": "/data/x", "type": "DirectoryOrCreate"}},
            {"mountPath": "/data/x"},
        ),
        (
            "hostpath:///cache/",
            {"hostPath": {"path": "/cache", "type": "DirectoryOrCreate"}},
            {"mountPath": "/cache"},
        ),
    ],
)
def test_weights_are_mounted_at_an_absolute_path(
    uri: str | None, source: Manifest, mount: Manifest
) -> None:
    pod = pods(serving(backend(cacheURI=uri)))

    assert pod["volumes"] == [{"name": "a-weights", **source}]
    assert pod["containers"][1]["volumeMounts"] == [{"name": "a-weights", **mount}]
    folder = pod["initContainers"][0]["args"][3]
    assert folder.startswith(mount["mountPath"] + "/")
    assert folder in pod["containers"][1]["command"]


@pytest.mark.parametrize(("uri", "folder"), [*FACTS["folders"].items()][1:])
def test_the_folder_is_that_of_the_original(uri: str, folder: str) -> None:
    pod = pods(serving(backend(modelURI=uri, cacheURI="hostpath:///weights")))

    assert pod["initContainers"][0]["args"][3] == f"/weights/{folder}"


def test_all_flags_of_several_pods_reach_the_engine_whole() -> None:
    template = 'it\'s {{ a }} "template"'
    config = {"chat-template": template, "max-model-len": 1000000}
    asked = backend(workers=[worker(pods=2, config=config)], loraAdapters=[SQL])

    bash, option, *scripts = engine(serving(asked))["command"]

    assert [bash, option, len(scripts)] == ["bash", "-c", 1]
    words = shlex.split(scripts[0].rpartition(" && ")[2])
    flags = {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}
    assert flags["--chat-template"] == template
    assert flags["--max-model-len"] == "1000000"
    assert json.loads(flags["--kv-events-config"])["topic"] == "kv-events"
    assert flags["--lora-modules"].startswith("sql=")


@pytest.mark.parametrize(
    ("resources", "devices"),
    [
        ({"limits": {"nvidia.com/gpu": "4"}}, 4),
        ({"limits": {"nvidia.com/gpu": 4}, "requests": {"nvidia.com/gpu": 4}}, 4),
        ({"requests": {"huawei.com/ascend-1980": "8"}}, 8),
        ({}, 0),
    ],
)
def test_devices_are_counted_from_limits_else_requests(resources: Manifest, devices: int) -> None:
    asked = backend(workers=[worker(pods=2, resources=resources)])

    assert f"--num-gpus={devices} " in engine(serving(asked))["command"][2]


def test_affinity_of_a_worker_is_used() -> None:
    affinity: Manifest = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    workers = [worker("prefill", affinity=affinity), worker("decode")]

    for asked in (backend(workers=[worker(affinity=affinity)]), disaggregated(workers=workers)):
        assert pods(serving(asked))["affinity"] == affinity


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_only_pods_with_ascend_devices_are_bound_to_their_nodes(part: str) -> None:
    ascend = {part: {"huawei.com/ascend-1980": "1"}}
    gpu = {part: {"nvidia.com/gpu": "1"}}
    own: Manifest = {"podAffinity": {}}
    workers = [worker("prefill", resources=ascend), worker("decode", resources=gpu)]
    asked = serving(disaggregated(workers=workers))

    assert "Ascend910" in json.dumps(pods(asked, 0)["affinity"])
    assert "affinity" not in pods(asked, 1)

    workers[0]["affinity"] = own
    assert pods(serving(disaggregated(workers=workers)), 0)["affinity"] == own


@pytest.mark.parametrize("text", ["x${FOO}y", "$(A)", '"quoted"'])
def test_any_text_in_the_environment_is_kept(text: str) -> None:
    entry = {"name": "A", "value": text}

    assert entry in engine(serving(backend(env=[entry])))["env"]


def test_what_the_user_says_wins_over_what_we_add() -> None:
    entry = {"name": "VLLM_USE_V1", "value": "0"}
    env = engine(serving(backend(env=[entry])))["env"]

    assert [e for e in env if e["name"] == "VLLM_USE_V1"] == [entry]


def test_the_downloader_gets_its_settings_from_secrets_too() -> None:
    entry = {"name": "ENDPOINT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}

    assert pods(serving(backend(env=[entry])))["initContainers"][0]["env"] == [entry]


@pytest.mark.parametrize(
    ("one", "replicas"),
    [
        (backend(workers=[worker(replicas=2)]), {"leader": 2}),
        (
            disaggregated(workers=[worker("prefill", replicas=3), worker("decode", replicas=2)]),
            {"prefill": 1, "decode": 1},
        ),
    ],
    ids=["vLLM", "disaggregated"],
)
def test_gangs_are_scheduled_only_if_asked_for(one: Manifest, replicas: Manifest) -> None:
    spec = child(asking("gang-scheduling", one), KTHENA.serving, "m-a")["spec"]

    assert "gangPolicy" not in serving(one)["spec"]["template"]
    assert spec["template"]["gangPolicy"] == {"minRoleReplicas": replicas}
    assert spec["schedulerName"] == "volcano"


@pytest.mark.parametrize("gang", [False, True])
def test_matrixinfer_is_told_about_gangs_for_they_are_its_default(gang: bool) -> None:
    make = (lambda *a, **k: asking("gang-scheduling", *a, **k)) if gang else booster
    asked = make(backend(), dialect=MATRIXINFER)

    spec = child(asked, MATRIXINFER.serving, "m-a", MATRIXINFER)["spec"]

    assert spec["template"]["gangSchedule"] == {"enable": gang}
    assert spec["recoveryPolicy"] == "InferGroupRecreate"
    assert spec["schedulerName"] == "volcano"


def test_sglang_is_served() -> None:
    config = {"mem-fraction-static": 0.8}
    asked = backend(type="SGLang", workers=[worker(pods=2, config=config)], loraAdapters=[SQL])

    command = engine(serving(asked))["command"]

    assert command[:3] == ["python3", "-m", "sglang.launch_server"]
    assert command[command.index("--port") + 1] == "8000"
    assert command[command.index("--nnodes") + 1] == "2"
    assert command[command.index("--mem-fraction-static") + 1] == "0.8"
    assert "sglang" in pods(serving(asked))["containers"][0]["args"]
    assert child(booster(asked), KTHENA.server, "m-a")["spec"]["inferenceEngine"] == "SGLang"


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (backend(type="MindIE"), r"spec.backends\[0\].type MindIE is not supported"),
        (backend(type="MindIEDisaggregated"), r"type MindIEDisaggregated is not supported"),
        (disaggregated(workers=[worker("prefill")]), "workers has no worker of type decode"),
        (backend(workers=[worker(config=["--x"])]), r"workers\[0\].config must be an object"),
        (backend(workers=[worker(config=[])]), r"workers\[0\].config must be an object"),
    ],
)
def test_what_cannot_be_converted_is_named(one: Manifest, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        convert(booster(one), KTHENA)


def test_an_adapter_is_downloaded_and_loaded() -> None:
    asked = serving(backend(loraAdapters=[SQL]))

    model, adapter = pods(asked)["initContainers"]
    assert [model["name"], adapter["name"]] == ["m-model-downloader", "m-lora-downloader-0"]
    modules = ["--enable-lora", "--lora-modules", f"sql={adapter['args'][-1]}"]
    assert engine(asked)["command"][-3:] == modules


def test_names_that_others_rely_on_are_kept() -> None:
    single, double = serving(), serving(disaggregated())

    assert [c["name"] for c in pods(single)["containers"]] == ["runtime", "engine"]
    assert [c["name"] for c in pods(double)["containers"]] == ["runtime", "vllm"]
    assert [r["name"] for r in single["spec"]["template"]["roles"]] == ["leader"]
    assert [r["name"] for r in double["spec"]["template"]["roles"]] == ["prefill", "decode"]
    assert pods(single)["containers"][0]["ports"] == [{"containerPort": 8100}]


def test_every_child_has_both_labels_of_its_manager_and_its_owner() -> None:
    for made in convert(booster(backend(autoscalingPolicy=METRICS)), KTHENA):
        labels, (owner,) = made["metadata"]["labels"], made["metadata"]["ownerReferences"]

        assert labels["workload.serving.volcano.sh/managed-by"] == "workload.serving.volcano.sh"
        assert labels["registry.volcano.sh/managed-by"] == "registry.volcano.sh"
        assert (owner["kind"], owner["uid"]) == ("ModelBooster", UID)
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)


SHARED = "POD_NAME NAMESPACE VLLM_USE_V1 REDIS_HOST REDIS_PORT REDIS_PASSWORD"


@pytest.mark.parametrize(
    ("one", "role", "names"),
    [
        (backend(), 0, SHARED),
        (disaggregated(), 0, f"{SHARED} HF_HUB_OFFLINE HCCL_IF_IP"),
        (
            disaggregated(),
            1,
            f"{SHARED} HF_HUB_OFFLINE GLOO_SOCKET_IFNAME TP_SOCKET_IFNAME HCCL_SOCKET_IFNAME",
        ),
    ],
    ids=["leader", "prefill", "decode"],
)
def test_names_in_the_environment_are_kept(one: Manifest, role: int, names: str) -> None:
    for container in pods(serving(one), role)["containers"]:
        assert [entry["name"] for entry in container["env"]] == names.split()


@pytest.mark.parametrize("one", [backend, disaggregated], ids=["vLLM", "disaggregated"])
def test_a_setting_from_elsewhere_is_left_to_the_kubelet(one: Callable[..., Manifest]) -> None:
    """It fills in what the container has in its environment."""
    source = {"configMapKeyRef": {"name": "c", "key": "k"}}
    env = [{"name": name, "valueFrom": source} for name in ("RUNTIME_URL", "RUNTIME_METRICS_PATH")]

    runtime = pods(serving(one(env=env)))["containers"][0]

    assert flag(runtime, "--engine-base-url") == "$(RUNTIME_URL)"
    assert flag(runtime, "--engine-metrics-path") == "$(RUNTIME_METRICS_PATH)"
    assert all(entry in runtime["env"] for entry in env)


def test_a_setting_without_a_value_is_the_default_one() -> None:
    runtime = pods(serving(backend(env=[{"name": "RUNTIME_URL"}])))["containers"][0]

    assert flag(runtime, "--engine-base-url") == "http://localhost:8000"


def flag(container: Manifest, name: str) -> str:
    arguments: list[str] = container["args"]
    return arguments[arguments.index(name) + 1]


def test_no_field_is_sent_that_later_releases_lack() -> None:
    assert "topologySpreadConstraints" not in serving()["spec"]


def test_pods_have_no_annotations_for_their_controller_breaks_on_them() -> None:
    assert "annotations" not in json.dumps(serving(disaggregated()))


def test_the_same_booster_gives_the_same_children() -> None:
    assert convert(booster(), KTHENA) == convert(booster(), KTHENA)


@pytest.mark.parametrize(
    ("given", "images"),
    [
        ({}, ["kthena/downloader:latest", "kthena/runtime:latest"]),
        ({"model_serving_runtime_image": "r:1"}, ["kthena/downloader:latest", "r:1"]),
        ({"model_serving_downloader_image": "d:1"}, ["d:1", "kthena/runtime:latest"]),
    ],
)
def test_the_images_beside_the_engine_can_be_named(
    given: dict[str, str], images: list[str]
) -> None:
    dialect = KTHENA.with_images(given)

    pod = pods(child(booster(), dialect.serving, "m-a", dialect))

    assert [pod["initContainers"][0]["image"], pod["containers"][0]["image"]] == images


OTHERWISE: dict[str, list[str]] = {
    "1e+06": ["1000000"],
    "1.234567e+06": ["1234567"],
    "[x 1 true]": ['["x",1,true]'],
    "map[a:b k:1]": ['{"k":1,"a":"b"}'],
    "<nil>": [],
}
"""What the original writes as Go prints it, which some engines cannot parse, and what we write."""


@pytest.mark.parametrize(("value", "text"), FACTS["numbers"] + FACTS["values"])
def test_values_are_those_of_the_original_but_for_known_differences(
    value: object, text: str
) -> None:
    flag = [] if value is None else ["--a"]

    assert flags({"a": value}) == [*flag, *OTHERWISE.get(text, [text])]


SORTED = {"b-a": "", "b_a": "", "B": "", "maxModelLen": 1}


@pytest.mark.parametrize(
    ("config", "command"),
    [
        ({"a_flag": 1000000}, ["--a-flag", "1000000"]),
        ({"a": 0.9}, ["--a", "0.9"]),
        ({"a": ""}, ["--a"]),
        ({"a": True, "b": False}, ["--a", "true", "--b", "false"]),
        ({"a": [1, "x"]}, ["--a", '[1,"x"]']),
        ({"a": {"a": {"b": 1}}}, ["--a", '{"a":{"b":1}}']),
        ({"a": None}, []),
        (SORTED, ["--B", "--b-a", "--b-a", "--maxModelLen", "1"]),  # by the key as it is written
    ],
)
def test_flags_have_values_that_engines_read(config: Manifest, command: list[str]) -> None:
    assert flags(config) == command


def test_switches_can_be_bare() -> None:
    assert flags({"a": True, "b": False}, bare_switches=True) == ["--a"]


def test_bare_switches_are_asked_for_by_an_annotation() -> None:
    asked = asking("bare-switches", backend(workers=[worker(config={"trust-remote-code": True})]))

    command = engine(child(asked, KTHENA.serving, "m-a"))["command"]

    assert command[command.index("--trust-remote-code") + 1] == "--kv-events-config"
