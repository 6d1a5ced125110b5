"""`inferno migrate wva`: our objects for those of WVA, and a line for what has no counterpart."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import ROOT, inferno, write

Manifest = dict[str, Any]

SAMPLE = ROOT / "samples/wva"

PARMS = {
    "decodeParms": {"alpha": "7", "beta": "0.5"},
    "prefillParms": {"gamma": "5.2", "delta": "0.001"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wva.yaml"


def migrated(path: Path) -> tuple[dict[tuple[str, str], Manifest], list[str]]:
    """The specs by kind and name of the objects, and the notes."""
    done = inferno("migrate", "wva", path)
    assert done.returncode == 0, done.stderr
    found = {
        (each["kind"], each["metadata"]["name"]): each["spec"]
        for each in yaml.safe_load_all(done.stdout)
    }
    lines = done.stderr.decode().splitlines()
    assert all(line.startswith("warning: ") for line in lines)
    return found, [line.removeprefix("warning: ") for line in lines]


def refusal(path: Path) -> str:
    done = inferno("migrate", "wva", path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    return done.stderr.decode()


def variant(name: str = "chat", /, **spec: object) -> Manifest:
    """A VariantAutoscaling of one variant with a Deployment of its name."""
    known = {
        "scaleTargetRef": {"kind": "Deployment", "name": name},
        "modelID": "org/chat",
        "accelerator": "A100",
        "acceleratorCount": 2,
        "variantCost": "80.0",
        "variantProfile": {"maxBatchSize": 8, "perfParms": PARMS},
    }
    return {
        "apiVersion": "llmd.ai/v1alpha1",
        "kind": "VariantAutoscaling",
        "metadata": {"name": name, "namespace": "llm"},
        "spec": {k: v for k, v in {**known, **spec}.items() if v is not None},
    }


def config_map(name: str, **data: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "wva"},
        "data": data,
    }


def autoscaler(kind: str, bounds: Manifest, **annotations: str) -> Manifest:
    names = {"managed": "llm-d.ai/managed", "model": "llm-d.ai/model-id", "role": "llm-d.ai/role"}
    given = {names[key]: value for key, value in annotations.items()}
    return {
        "apiVersion": "keda.sh/v1alpha1" if kind == "ScaledObject" else "autoscaling/v2",
        "kind": kind,
        "metadata": {"name": "chat-scaler", "namespace": "llm", "annotations": given},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, **bounds},
    }


def deployment(cards: object = 2, card: str = "NVIDIA-H100-80GB-HBM3") -> Manifest:
    pod = {
        "nodeSelector": {"nvidia.com/gpu.product": card},
        "containers": [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": cards}}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"replicas": 3, "template": {"spec": pod}},
    }


COSTS = config_map(
    "accelerator-unit-costs",
    A100='{"device": "NVIDIA-A100-PCIE-80GB", "cost": "40.00"}',
    H100='{"device": "NVIDIA-H100-80GB-HBM3", "cost": "100.0"}',
)
CLASSES = config_map(
    "service-classes-config",
    **{
        "premium.yaml": "name: Premium\npriority: 1\ndata:\n"
        "- {model: org/chat, slo-tpot: 24, slo-ttft: 500}\n",
        "free.yaml": "name: Free\ndata:\n- {model: org/code, slo-tpot: 200, slo-ttft: 2000}\n",
    },
)


def test_a_variant_with_its_class_and_its_cost_becomes_all_kinds_and_needs_no_remark(
    file: Path,
) -> None:
    found, notes = migrated(write(file, variant(), COSTS, CLASSES))

    assert notes == []
    assert found["Accelerator", "a100"] == {"name": "A100", "type": "A100", "cost": 40}
    assert found["Model", "org-chat"]["data"] == [
        {
            "acc": "A100",
            "accCount": 2,
            "decodeParms": {"alpha": 7, "beta": 0.5},
            "prefillParms": {"gamma": 5.2, "delta": 0.001},
            "maxBatchSize": 8,
            "atTokens": 2**20,
            "maxNumSeqs": 8,
        }
    ]
    assert found["ServiceClass", "premium"] == {
        "name": "Premium",
        "priority": 1,
        "data": [{"model": "org/chat", "slo-itl": 24, "slo-ttft": 500}],
    }
    assert found["Server", "org-chat"] == {
        "name": "org-chat",
        "class": "Premium",
        "model": "org/chat",
        "minNumReplicas": 1,
        "workloads": [{"accelerator": "A100", "kind": "Deployment", "name": "chat"}],
        "actuation": "Publish",
        "measure": {"source": "vLLM", "labels": {"namespace": "llm", "model_name": "org/chat"}},
    }
    assert found["Capacity", "cards"] == {"fromNodes": True}
    assert (found["Optimizer", "inferno"]["mode"], found["Optimizer", "inferno"]["interval"]) == (
        "Recommend",
        60,
    )


def test_the_variants_of_a_model_are_one_server_that_may_be_on_all_their_accelerators(
    file: Path,
) -> None:
    other = variant(
        "chat-h100", accelerator="H100", acceleratorCount=1, variantCost="100", minReplicas=2
    )
    running = {"status": {"desiredOptimizedAlloc": {"numReplicas": 3}}}
    found, notes = migrated(write(file, variant() | running, other | running, COSTS, CLASSES))

    server = found["Server", "org-chat"]
    assert [item["accelerator"] for item in server["workloads"]] == ["A100", "H100"]
    assert server["currentAlloc"]["numReplicas"] == 6
    assert [part["numReplicas"] for part in server["currentAlloc"]["mix"]] == [3, 3]
    assert server["minNumReplicas"] == 2
    assert found["Optimizer", "inferno"]["data"]["optimizer"]["heterogeneous"]
    assert notes == [
        (
            "Server org-chat: minNumReplicas 2 is the sum of its variants: a Server has one minimum"
            " for all its accelerators"
        ),
    ]


def test_a_second_workload_on_an_accelerator_and_what_has_no_counterpart_is_told(
    file: Path,
) -> None:
    _, notes = migrated(
        write(file, variant(), variant("more", variantID="x-A100-2", maxReplicas=9), COSTS, CLASSES)
    )

    assert notes == [
        "VariantAutoscaling llm/more: spec.variantID: no counterpart",
        (
            "VariantAutoscaling llm/more: left out: chat is on A100 too, and a Server has one"
            " workload for each accelerator"
        ),
    ]


def test_a_model_with_several_accelerators_keeps_what_is_known_of_each(file: Path) -> None:
    profiles = [
        {"acc": "A100", "accCount": 1, "perfParms": PARMS, "maxBatchSize": 4},
        {"acc": "H100", "accCount": 2, "perfParms": PARMS, "maxBatchSize": 9},
        {"acc": "L4", "accCount": 2, "perfParms": PARMS, "maxBatchSize": 9},
    ]
    old = variant()
    old["spec"] = {
        "modelID": "org/chat",
        "modelProfile": {"accelerators": profiles},
        "sloClassRef": {"name": "premium", "key": "org/chat"},
    }
    old["metadata"]["labels"] = {"inference.optimization/acceleratorName": "A100"}
    found, notes = migrated(write(file, old, COSTS, CLASSES))

    data = found["Model", "org-chat"]["data"]
    assert [(row["acc"], row["accCount"], row["maxBatchSize"]) for row in data] == [
        ("A100", 1, 4),
        ("H100", 2, 9),
    ]
    assert [w["name"] for w in found["Server", "org-chat"]["workloads"]] == ["chat"]
    assert notes == [
        "VariantAutoscaling llm/chat: L4: left out: it has no cost",
        (
            "Model org/chat: H100: nothing of it runs there: plans leave it out until"
            " spec.workloads of the Server names an object"
        ),
    ]


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("HorizontalPodAutoscaler", {"minReplicas": 2, "maxReplicas": 9}),
        ("ScaledObject", {"minReplicaCount": 2, "maxReplicaCount": 9}),
    ],
)
def test_an_annotated_autoscaler_and_its_deployment_tell_the_same_as_an_object(
    kind: str, bounds: Manifest, file: Path
) -> None:
    managed = autoscaler(kind, bounds, managed="true", model="org/chat")
    found, notes = migrated(write(file, managed, deployment(), COSTS, CLASSES))

    assert found["Accelerator", "h100"] == {"name": "H100", "type": "H100", "cost": 100}
    (row,) = found["Model", "org-chat"]["data"]
    assert (row["acc"], row["accCount"]) == ("H100", 2)
    server = found["Server", "org-chat"]
    assert (server["minNumReplicas"], server["currentAlloc"]) == (
        2,
        {"accelerator": "H100", "numReplicas": 3},
    )
    assert notes[-1] == (
        f"{kind} llm/chat-scaler: at most 9 replicas: no counterpart: the cards of the Capacity"
        " are the limit"
    )


def test_autoscalers_of_others_and_workers_for_prefill_are_left_out(file: Path) -> None:
    ours = variant()
    foreign = autoscaler("ScaledObject", {}, model="org/foreign")
    of_keda = autoscaler("HorizontalPodAutoscaler", {}, managed="true", model="org/copy")
    of_keda["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "uid": "1"}]
    prefill = autoscaler("ScaledObject", {}, managed="true", model="org/chat", role="prefill")
    found, notes = migrated(write(file, ours, foreign, of_keda, prefill, COSTS, CLASSES))

    assert [name for kind, name in found if kind == "Server"] == ["org-chat"]
    assert notes == [
        (
            "ScaledObject llm/chat-scaler: llm-d.ai/role: prefill: left out: replicas of a Server"
            " do both phases"
        ),
    ]


def test_without_parameters_the_operator_is_to_calibrate(file: Path) -> None:
    found, notes = migrated(write(file, variant(variantProfile=None), COSTS, CLASSES))

    model = found["Model", "org-chat"]
    assert model["calibrate"] == "Use"
    assert model["data"][0]["decodeParms"] == {"alpha": 0, "beta": 0}
    assert [note.partition(":")[0] for note in notes] == ["Model org/chat"] * 2
    assert "no performance parameters" in notes[0]
    assert "a batch of 256" in notes[1]


def test_without_a_class_targets_of_the_queueing_model_are_taken(file: Path) -> None:
    queueing = config_map(
        "wva-queueing-model-config",
        default="sloMultiplier: 3.0\ntuningEnabled: true\n",
        chat='model_id: org/chat\nnamespace: "llm"\ntargetTTFT: 500.0\ntargetITL: 50.0\n',
    )
    found, notes = migrated(write(file, variant(), COSTS, queueing))

    assert found["ServiceClass", "default"]["data"] == [
        {"model": "org/chat", "slo-itl": 50, "slo-ttft": 500}
    ]
    assert notes == [
        "ConfigMap wva/wva-queueing-model-config: default: sloMultiplier: no counterpart",
        "ConfigMap wva/wva-queueing-model-config: default: tuningEnabled: no counterpart",
    ]


def test_a_model_without_targets_is_told(file: Path) -> None:
    found, notes = migrated(write(file, variant(), COSTS))

    assert found["ServiceClass", "default"]["data"] == [{"model": "org/chat"}]
    assert [note.partition(":")[0] for note in notes] == ["Model org/chat"]


def test_the_cost_of_a_variant_counts_where_its_accelerator_has_none(file: Path) -> None:
    found, notes = migrated(write(file, variant(), CLASSES))
    listed, others = migrated(write(file, variant(variantCost="90"), COSTS, CLASSES))

    assert found["Accelerator", "a100"]["cost"] == 40
    assert notes == ["Accelerator A100: 40 cents/hour: the cost of its variant has no unit"]
    assert listed["Accelerator", "a100"]["cost"] == 40
    assert others == [
        "VariantAutoscaling llm/chat: cost 90 of a replica: not used: A100 costs 40 cents/hour"
    ]


def test_a_model_may_have_no_replica_where_wva_lets_it(file: Path) -> None:
    zero = config_map(
        "wva-model-scale-to-zero-config",
        default="enable_scale_to_zero: true\nretention_period: 15m\n",
        code="model_id: org/code\nenable_scale_to_zero: false\n",
    )
    found, notes = migrated(
        write(file, variant(), variant("code", modelID="org/code"), COSTS, CLASSES, zero)
    )

    assert found["Server", "org-chat"]["minNumReplicas"] == 0
    assert found["Server", "org-code"]["minNumReplicas"] == 1
    assert [note.partition(":")[0] for note in notes] == [
        "Server org-chat",
        "ConfigMap wva/wva-model-scale-to-zero-config",
    ]


def test_thresholds_and_settings_are_told_and_foreign_config_maps_are_not(file: Path) -> None:
    others = (
        config_map("wva-saturation-scaling-config", default="kvCacheThreshold: 0.8\n"),
        config_map("wva-variantautoscaling-config", GLOBAL_OPT_INTERVAL="2m", PROMETHEUS_URL="x"),
        config_map("kube-root-ca.crt", ca="not: [yaml"),
    )
    found, notes = migrated(write(file, variant(), COSTS, CLASSES, *others))

    assert found["Optimizer", "inferno"]["interval"] == 120
    assert notes == [
        "ConfigMap wva/wva-saturation-scaling-config: default: kvCacheThreshold: no counterpart",
        (
            "ConfigMap wva/wva-variantautoscaling-config: PROMETHEUS_URL: settings of the"
            " WVA controller; this operator reads INFERNO_* variables"
        ),
    ]


def test_each_namespace_has_its_own_objects(file: Path) -> None:
    other = variant()
    other["metadata"]["namespace"] = "other"
    write(file, variant(), other, COSTS, CLASSES)

    documents: Iterable[Manifest] = yaml.safe_load_all(inferno("migrate", "wva", file).stdout)
    namespaces = [each["metadata"]["namespace"] for each in documents]

    assert namespaces == ["llm"] * 7 + ["other"] * 7


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([COSTS], "inferno: nothing to migrate: no VariantAutoscaling"),
        ([variant(modelID=None)], "VariantAutoscaling llm/chat: spec.modelID is missing"),
        ([variant(variantCost="much")], "spec.variantCost must be a valid number, not 'much'"),
        (
            [variant(), config_map("accelerator-unit-costs", A100='{"cost": "x"}')],
            "ConfigMap wva/accelerator-unit-costs: A100: cost must be a valid number, not 'x'",
        ),
        (
            [variant(), config_map("service-classes-config", bad="name: [")],
            "ConfigMap wva/service-classes-config: bad: not YAML",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(
    objects: list[Manifest], message: str, file: Path
) -> None:
    assert message in refusal(write(file, *objects))


def test_a_workload_without_an_accelerator_is_left_out(file: Path) -> None:
    managed = autoscaler("ScaledObject", {}, managed="true", model="org/chat")
    found, notes = migrated(write(file, variant("other"), managed, COSTS, CLASSES))

    assert [w["name"] for w in found["Server", "org-chat"]["workloads"]] == ["other"]
    assert notes == [
        (
            "ScaledObject llm/chat-scaler: left out: on which accelerator is chat? Give its"
            " Deployment too, or --accelerator chat=NAME"
        ),
    ]


def test_what_is_printed_for_the_sample_can_be_planned_with_once_it_has_a_load(
    file: Path,
) -> None:
    printed = inferno("migrate", "wva", SAMPLE).stdout
    objects = list(yaml.safe_load_all(printed))
    for each in objects:
        if each["kind"] == "Server":
            load = {"arrivalRate": 600, "avgInTokens": 500, "avgOutTokens": 200}
            each["spec"]["currentAlloc"] = {**each["spec"].get("currentAlloc", {}), "load": load}
        if each["kind"] == "Capacity":
            each["spec"] = {"count": [{"type": t, "count": 16} for t in ("A100", "L40S", "H100")]}
    known = [each for each in objects if each["metadata"]["name"] != "qwen-qwen3-32b"]

    planned = inferno("plan", write(file, *known))

    assert planned.returncode == 0, planned.stderr
    assert b"1 of 1 servers have an allocation" in planned.stdout


def serving(*command: str, selector: Manifest | None = None, cards: str = "2") -> Manifest:
    """A Deployment of AMD cards whose container runs a command."""
    container = {"name": "vllm", "command": list(command), "resources": {"limits": {}}}
    if cards:
        container["resources"] = {"limits": {"amd.com/gpu": cards}}
    pod = {"containers": [container], **({"nodeSelector": selector} if selector else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "llm"},
        "spec": {"replicas": 3, "template": {"spec": pod}},
    }


MANAGED = autoscaler("ScaledObject", {}, managed="true", model="Qwen3-32B")
ON_MI355X = {"amd.com/gpu.product-name": "AMD_Instinct_MI355X"}


@pytest.mark.parametrize(
    ("selector", "seen"),
    [
        (None, "Deployment chat has no nodeSelector"),
        ({"pool": "gpu"}, "the nodeSelector of Deployment chat (pool: gpu) names no known card"),
    ],
)
def test_where_no_card_is_named_nothing_is_migrated_and_the_way_out_is_said(
    selector: Manifest | None, seen: str, file: Path
) -> None:
    deployed = serving("vllm", "serve", "Qwen3-32B", selector=selector)
    done = inferno("migrate", "wva", write(file, MANAGED, deployed))

    assert (done.returncode, done.stdout) == (2, b"")
    warning, error = done.stderr.decode().splitlines()
    assert warning.startswith(f"warning: ScaledObject llm/chat-scaler: left out: {seen}")
    assert "amd.com/gpu.product-name" in warning
    assert "--accelerator" in warning
    assert len(warning) < 400
    assert error.startswith("inferno: nothing was migrated: ")


@pytest.mark.parametrize("cost", ["", "nan", "-3", "$2"])
def test_annotations_that_say_nothing_are_told_or_count_as_absent(cost: str, file: Path) -> None:
    asked = autoscaler("ScaledObject", {}, managed="true", model="")
    asked["metadata"]["annotations"]["llm-d.ai/variant-cost"] = cost

    objects, notes = migrated(write(file, asked, deployment()))

    assert ("Server", "chat") in objects
    assert any("no llm-d.ai/model-id" in note for note in notes)
    assert any(f"llm-d.ai/variant-cost: {cost!r} is not a number" in note for note in notes)


@pytest.mark.parametrize("placement", ["nodeSelector", "affinity"])
def test_a_stateful_set_is_read_as_a_deployment_is(placement: str, file: Path) -> None:
    workload = {**serving("vllm", "serve", "Qwen3-32B", selector=ON_MI355X), "kind": "StatefulSet"}
    if placement == "affinity":
        ((label, card),) = workload["spec"]["template"]["spec"].pop("nodeSelector").items()
        term = {"matchExpressions": [{"key": label, "operator": "In", "values": [card]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        workload["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat"}
    scaler = {**MANAGED, "spec": {**MANAGED["spec"], "scaleTargetRef": target}}

    done = inferno("migrate", "wva", write(file, scaler, workload, COSTS, CLASSES))

    assert done.returncode == 0, done.stderr
    (server,) = [o for o in yaml.safe_load_all(done.stdout) if o["kind"] == "Server"]
    (placed,) = server["spec"]["workloads"]
    assert (placed["kind"], placed["accelerator"]) == ("StatefulSet", "AMD_Instinct_MI355X")


@pytest.mark.parametrize("option", ["MI355X", "chat=MI355X"])
def test_an_option_names_the_card_of_a_workload_that_names_none(option: str, file: Path) -> None:
    deployed = serving("vllm", "serve", "Qwen3-32B")
    write(file, MANAGED, deployed, COSTS, CLASSES)
    done = inferno("migrate", "wva", file, "--accelerator", option)

    assert done.returncode == 0, done.stderr
    objects = {each["kind"]: each["spec"] for each in yaml.safe_load_all(done.stdout)}
    assert objects["Server"]["workloads"][0]["accelerator"] == "MI355X"
    assert objects["Model"]["data"][0]["accCount"] == 2


def test_an_option_for_a_workload_that_does_not_exist_is_refused(file: Path) -> None:
    write(file, MANAGED, serving("vllm", "serve", "Qwen3-32B"))
    done = inferno("migrate", "wva", file, "--accelerator", "chad=MI355X")

    assert done.returncode == 2
    assert "--accelerator: no workload is named 'chad'; did you mean chat?" in done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "notes"),
    [
        (
            ["vllm", "serve", "Qwen/Qwen3-32B", "--max-num-seqs=256", "-tp", "2"],
            [
                (
                    "ScaledObject llm/chat-scaler: llm-d.ai/model-id is 'Qwen3-32B', and Deployment"
                    " chat serves 'Qwen/Qwen3-32B': spec.measure takes that as model_name"
                )
            ],
        ),
        (
            ["sh", "-c", "vllm serve Qwen/Qwen3-32B --served-model-name Qwen3-32B alias -tp 2"],
            [],
        ),
        (
            ["vllm", "serve", "Qwen3-32B", "--tensor-parallel-size", "4"],
            [
                (
                    "ScaledObject llm/chat-scaler: 2 AMD_Instinct_MI355X for each replica, and"
                    " Deployment chat runs on 4 (--tensor-parallel-size 4): correct accCount of"
                    " Model Qwen3-32B"
                )
            ],
        ),
        (
            ["python3", "-m", "sglang.launch_server", "--model-path", "Qwen3-32B", "--tp", "2"],
            [],
        ),
    ],
)
def test_what_a_deployment_serves_is_compared_with_what_the_model_says(
    command: list[str], notes: list[str], file: Path
) -> None:
    found, told = migrated(write(file, MANAGED, serving(*command, selector=ON_MI355X)))

    assert [note for note in told if note.startswith("ScaledObject")] == notes
    name = "Qwen/Qwen3-32B" if "Qwen/Qwen3-32B" in command else "Qwen3-32B"
    assert found["Server", "qwen3-32b"]["measure"]["labels"]["model_name"] == name


def test_the_batch_of_a_deployment_counts_and_another_one_of_the_model_is_told(file: Path) -> None:
    deployed = serving("vllm", "serve", "org/chat", "--max-num-seqs", "128", selector=ON_MI355X)
    managed = autoscaler("ScaledObject", {}, managed="true", model="org/chat")
    found, told = migrated(write(file, managed, deployed, CLASSES))
    _, notes = migrated(write(file, variant(), deployed, COSTS, CLASSES))

    assert found["Model", "org-chat"]["data"][0]["maxNumSeqs"] == 128
    assert (
        "Model org/chat: AMD_Instinct_MI355X: a batch of 128: --max-num-seqs of Deployment chat"
        in told
    )
    assert notes == [
        (
            "VariantAutoscaling llm/chat: a batch of 8 (maxBatchSize), and Deployment chat takes"
            " 128 (--max-num-seqs): correct maxBatchSize of Model org/chat"
        )
    ]
