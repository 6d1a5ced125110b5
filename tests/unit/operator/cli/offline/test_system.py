"""From the objects of files to a System: the same one from every form, or one line."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from inferno_operator.cli.offline.manifests import read_documents
from inferno_operator.cli.offline.system import parse_system, read_system
from inferno_optimizer.errors import InputError, UnsupportedError
from inferno_optimizer.system import SaturationPolicy, System
from inferno_optimizer.wire.codec import decode_system

ROOT = Path(__file__).parents[5]
SMALL = ROOT / "tests/data/systems/small.json"
API_VERSION = "inferno.platform.ai/v1alpha1"


SERVER_SPEC = {
    "model": "M",
    "currentAlloc": {
        "accelerator": "",
        "numReplicas": 0,
        "load": {"arrivalRate": 9, "avgLength": 9},
    },
}


def manifest(kind: str, spec: dict[str, Any], name: str = "a", namespace: str = "") -> str:
    metadata = {"name": name, "namespace": namespace}
    return yaml.safe_dump(
        {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
    )


def optimizer(name: str) -> str:
    flags = ("unlimited", "heterogeneous", "milpSolver", "useCplex")
    parameters = dict.fromkeys(flags, False)
    return manifest("Optimizer", {"optimize": False, "data": {"optimizer": parameters}}, name)


def accelerator(object_name: str = "a", **spec: object) -> str:
    return manifest("Accelerator", {"name": "A", "type": "T", "cost": 1, **spec}, object_name)


def in_order(system: System) -> tuple[object, ...]:
    """What a system says, whatever the order of its objects."""
    return (
        set(system.accelerators),
        set(system.profiles),
        {service_class.name: service_class for service_class in system.classes},
        set(system.servers),
        system.capacity,
    )


def read(tmp_path: Path, *manifests: str, name: str = "a.yaml") -> System:
    file = tmp_path / name
    file.write_text("---\n".join(manifests))
    return read_system([str(file)])


def refusal(tmp_path: Path, *manifests: str, name: str = "a.yaml") -> str:
    with pytest.raises((InputError, UnsupportedError)) as raised:
        read(tmp_path, *manifests, name=name)
    return str(raised.value).replace(f"{tmp_path}/", "")


def test_the_small_sample_is_the_same_system_as_manifests_and_as_json() -> None:
    manifests = read_system([str(ROOT / "samples/small")])

    assert in_order(manifests) == in_order(decode_system(json.loads(SMALL.read_text())))
    assert manifests.options.unlimited


def test_a_folder_of_sections_is_the_same_system_as_the_whole_document(tmp_path: Path) -> None:
    document = json.loads(SMALL.read_text())["system"]
    files = {
        "acceleratorData": "accelerator-data.json",
        "capacityData": "capacity-data.json",
        "modelData": "model-data.json",
        "optimizerData": "optimizer-data.json",
        "serverData": "server-data.json",
        "serviceClassData": "serviceclass-data.json",
    }
    for section, name in files.items():
        (tmp_path / name).write_text(json.dumps(document[section]))

    assert read_system([str(tmp_path)]) == read_system([str(SMALL)])


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "Namespace"),
        ("v1", "ConfigMap"),
        ("workload.serving.volcano.sh/v1alpha1", "ModelBooster"),
        ("registry.matrixinfer.ai/v1alpha1", "Model"),
    ],
)
def test_what_others_look_after_says_nothing_about_the_plan(
    tmp_path: Path, api_version: str, kind: str
) -> None:
    other = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: llm}}\n"

    assert read(tmp_path, other, accelerator()) == read(tmp_path, accelerator())


def test_keys_of_the_published_api_that_say_nothing_to_us_are_no_unknown_fields(
    tmp_path: Path,
) -> None:
    power = {"idle": 50, "full": 400, "midPower": 200, "midUtil": 0.5}
    accelerators = [{"name": "A", "type": "T", "memSize": 80, "memBW": 2000, "power": power}]
    document = {
        "AcceleratorData": {"accelerators": accelerators},
        "serverData": {"servers": [{"name": "S", "desiredAlloc": {"accelerator": ""}}]},
        "optimizerData": {"optimizer": {"unlimited": True, "useCplex": False}},
    }

    assert len(read(tmp_path, json.dumps(document), name="a.json").accelerators) == 1


def test_a_list_from_a_cluster_and_a_kustomization_have_no_unknown_fields(tmp_path: Path) -> None:
    item = yaml.safe_load(accelerator())
    item["metadata"] |= {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
        "resourceVersion": "7",
    }
    items = [{**item, "status": {"active": True}}]
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(listed))
    (tmp_path / "kustomization.yaml").write_text("resources: [list.yaml]\nnamespace: llm\n")

    assert len(read_system([str(tmp_path)]).accelerators) == 1


def test_unknown_fields_of_all_objects_are_told_together_and_can_be_ignored(
    tmp_path: Path,
) -> None:
    manifests = (accelerator(colour="red"), accelerator("b", name="B", size=2))
    told: list[str] = []

    message = refusal(tmp_path, *manifests)
    system = read_system([str(tmp_path / "a.yaml")], told.extend)

    assert message.startswith("a.yaml:7: Accelerator a: spec.colour is unknown")
    assert ": Accelerator b: spec.size is unknown; did you mean" in message
    assert len(told) == 2
    assert len(system.accelerators) == 2


def test_an_equal_mistake_of_many_objects_is_told_once(tmp_path: Path) -> None:
    models = (
        manifest("Model", {"name": name, "data": [{"acc": "A", "batch": 1}]}, name)
        for name in "abcdefgh"
    )

    message = refusal(tmp_path, *models)

    assert message.startswith("a.yaml:9: Model a: spec.data[0].batch is unknown; ")
    assert message.count("batch is unknown") == 1
    assert "; and so in 7 more places" in message


def test_an_item_of_a_list_is_found_by_its_own_line(tmp_path: Path) -> None:
    items = [yaml.safe_load(accelerator()), yaml.safe_load(accelerator("b", name="B", cost=-1))]
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}, sort_keys=False)

    line = next(n for n, text in enumerate(listed.splitlines(), start=1) if "cost: -1" in text)

    assert refusal(tmp_path, listed).startswith(f"a.yaml:{line}: accelerator 'B': cost: ")


def test_the_sample_with_boosters_is_read() -> None:
    assert len(read_system([str(ROOT / "samples/model-booster")]).servers) > 0


IDLE = {
    "currentAlloc": {
        "accelerator": "",
        "numReplicas": 0,
        "load": {"arrivalRate": 0, "avgLength": 0},
    }
}


def test_a_name_without_an_object_is_no_reason_to_refuse(tmp_path: Path) -> None:
    server = manifest("Server", {"name": "S", "class": "gone", "model": "gone", **IDLE})

    assert len(read(tmp_path, server).servers) == 1


@pytest.mark.parametrize(
    ("manifests", "message"),
    [
        (["[]"], "a.yaml:1: neither a Kubernetes object (it is a list) nor SystemData"),
        (
            [accelerator(cost="4O"), accelerator("b", name="B", cost="2S")],
            "a.yaml:7: Accelerator a: spec.cost must be a valid number, not '4O'; a.yaml:17: Acc",
        ),
        (
            ["kind: Sever\n", accelerator(cost="4O"), "kind: Sevrer\n"],
            "a.yaml:1: no kind is named ",
        ),
        (
            [accelerator(cost=-1), accelerator("b", name="B", cost=-2)],
            "a.yaml:7: accelerator 'A': cost: -1 is negative; a.yaml:17: accelerator 'B': cost",
        ),
        (
            [accelerator(), accelerator("b")],
            "a.yaml:18: accelerator 'A': name: 'A' is already used by the older Accelerator 'a'",
        ),
        (
            [
                manifest("Capacity", {"count": []}, namespace="x"),
                manifest("Capacity", {"count": []}, namespace="y"),
            ],
            "several namespaces, where one system has one: x (a.yaml:1), y (a.yaml:",
        ),
        (
            [accelerator(), manifest("Capacity", {"count": []}, namespace="prod")],
            "several namespaces, where one system has one: none (a.yaml:1), prod (a.yaml:11); c",
        ),
        (
            [manifest("Server", {}).replace("spec: {}", "class: C")],
            "a.yaml:1: Server a: spec is missing",
        ),
        (["kind: List\nitems: []\n"], "nothing to optimize: there is no object"),
        (
            [
                "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\n",
                "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\n",
            ],
            "nothing to optimize: 2 objects of other kinds (LLMInferenceService, ScaledObject);",
        ),
        (
            ["kind: Server\n", "serverData: {servers: []}\n"],
            "a.yaml:3: SystemData stands alone, but there is a.yaml:1 too",
        ),
    ],
)
def test_manifests_that_make_no_system(manifests: list[str], message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, *manifests).startswith(message)


def test_a_namespace_is_chosen_and_takes_the_objects_that_name_none(tmp_path: Path) -> None:
    texts = [
        manifest("Accelerator", {"name": name, "type": "T", "cost": 1}, name.lower(), namespace)
        for name, namespace in (("P", "prod"), ("D", "dev"), ("N", ""))
    ]
    file = tmp_path / "a.yaml"
    file.write_text("---\n".join(texts))

    named = read_system([str(file)], namespace="prod").accelerators

    assert [accelerator.name for accelerator in named] == ["N", "P"]


@pytest.mark.parametrize("others", [(), ("",)], ids=["alone", "beside one that names none"])
def test_a_namespace_without_objects_is_named_with_those_that_have_some(
    others: Sequence[str], tmp_path: Path
) -> None:
    file = tmp_path / "a.yaml"
    texts = [
        manifest("Accelerator", {"name": f"P{n}", "type": "T", "cost": 1}, f"p{n}", namespace)
        for n, namespace in enumerate(("prod", *others))
    ]
    file.write_text("---\n".join(texts))

    with pytest.raises(InputError) as raised:
        read_system([str(file)], namespace="dev")

    assert str(raised.value) == "no object is in namespace 'dev'; given are: prod"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            '{"serverData": {"servers": [{"name": "S", "minNumReplicas": "1"}]}}',
            "a.json: server 'S': minNumReplicas: expected an integer, not \"1\"",
        ),
        (
            '{"capacityData": {"count": [{"type": "T", "count": -4}]}}',
            "a.json: capacity 'T': count: -4 is negative",
        ),
        (
            '{"modelData": {"models": [{"name": "m", "acc": "A", "perfParms": {"alpha": "1"}}]}}',
            "a.json: performance data 'm/A': perfParms.alpha: ",
        ),
    ],
)
def test_system_data_that_makes_no_system(document: str, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, document, name="a.json").startswith(message)


def test_without_an_optimizer_the_options_that_are_used_are_told(tmp_path: Path) -> None:
    told: list[str] = []

    server = manifest("Server", {**SERVER_SPEC, "name": "s", "class": "C"}, "s")
    for manifests in ((server,), (server, optimizer("inferno")), (optimizer("inferno"),)):
        (tmp_path / "a.yaml").write_text("---\n".join(manifests))
        system = read_system([str(tmp_path)], remark=told.extend)
        assert system.options.saturation_policy is SaturationPolicy.HOLD
        assert system.options.hold_undecided

    assert len(told) == 2
    assert told[0].startswith("there is no Optimizer, so the plan is made")
    assert told[1] == "there is no Server, so there is nothing to decide"


def server_of(load: str) -> str:
    return (
        "apiVersion: inferno.platform.ai/v1alpha1\nkind: Server\nmetadata: {name: s}\nspec:\n"
        "  name: s\n  class: C\n  model: m\n  currentAlloc:\n    accelerator: A\n"
        f"    numReplicas: 1\n    load: {load}\n"
    )


@pytest.mark.parametrize(
    ("load", "field", "advice"),
    [
        ("{arrivalRate: 1,200, avgLength: 10}", "200", "write a number without one"),
        ("{arrivalRate: 7, avgLength: 10, nonsense: }", "nonsense", "known: arrivalRate"),
        ("{arrivalRate: 7, avgLength: 10, avglength: }", "avglength", "did you mean avgLength"),
    ],
)
def test_an_unknown_field_without_a_value_is_as_unknown_as_with_one(
    load: str, field: str, advice: str, tmp_path: Path
) -> None:
    refused = refusal(tmp_path, server_of(load))

    assert refused.startswith(f"a.yaml:11: Server s: spec.currentAlloc.load.{field} is unknown")
    assert advice in refused


def doubts_of(tmp_path: Path, text: str, name: str = "a.yaml") -> list[str]:
    (tmp_path / name).write_text(text)
    told: list[str] = []
    read_system([str(tmp_path / name)], doubt=told.extend)
    return [line.removeprefix(f"{tmp_path}/") for line in told]


def test_a_known_field_without_a_value_and_a_target_of_0_are_told_with_their_place(
    tmp_path: Path,
) -> None:
    targets = "\n".join(f"  - {{model: m{i}, slo-itl: , slo-ttft: 0}}" for i in range(3))
    spec = f"spec:\n  name: C\n  priority: 1\n  data:\n{targets}\n"
    head = "apiVersion: inferno.platform.ai/v1alpha1\nkind: ServiceClass\nmetadata: {name: c}\n"
    told = doubts_of(tmp_path, head + spec)

    assert told == [
        (
            "a.yaml:8: ServiceClass c: spec.data[0].slo-itl is empty, and counts as absent; give a"
            " value or remove it; and so in 2 more places"
        ),
        (
            "a.yaml:8: service class 'C' (m0): slo-ttft: 0 counts as no target (so of 2 more"
            " models); give a limit, or remove the field"
        ),
    ]


def test_a_null_in_system_data_is_told(tmp_path: Path) -> None:
    load = '{"arrivalRate": null, "avgLength": 8}'
    servers = f'[{{"name": "S", "currentAlloc": {{"load": {load}}}}}]'
    told = doubts_of(tmp_path, f'{{"serverData": {{"servers": {servers}}}}}', "a.json")

    assert told[0] == "a.json: server 'S': currentAlloc.load.arrivalRate: is null, and counts as 0"


def test_a_name_that_is_missing_is_one_line_for_all_servers_that_have_it(tmp_path: Path) -> None:
    data = [{"acc": "A", "accCount": 1, "alpha": 9, "beta": 1, "maxBatchSize": 8, "atTokens": 9}]
    texts = [
        manifest("Server", {**SERVER_SPEC, "name": name, "class": "Gone"}, name)
        for name in ("s", "t", "u")
    ]
    texts += [manifest("Model", {"name": "M", "data": data}, "m")]
    texts += [manifest("ServiceClass", {"name": "C", "priority": 0, "data": []}, "c")]
    told = [line.partition(": ")[2] for line in doubts_of(tmp_path, "---\n".join(texts))]

    assert told == [
        "there is no accelerator: add A",
        (
            "server 's': class: no service class is named 'Gone'; correct it or add the class; the"
            " same of t, u"
        ),
        (
            "service class 'C': priority: 0 counts as 100, the least important; give 1 (the most"
            " important) to 100"
        ),
    ]


def test_a_name_that_is_missing_in_system_data_is_told(tmp_path: Path) -> None:
    document = json.loads(SMALL.read_text())
    document["system"]["acceleratorData"]["accelerators"].pop()
    told = doubts_of(tmp_path, json.dumps(document), "a.json")

    assert any("a.json: model 'granite-13b' (G2): acc: no accelerator" in line for line in told)


def cents_as_dollars(kind: str, spec: dict[str, Any]) -> None:
    if kind == "Accelerator":
        spec["cost"] /= 100


def seconds_as_ms(kind: str, spec: dict[str, Any]) -> None:
    for target in spec["data"] if kind == "ServiceClass" else ():
        target["slo-itl"] = target.get("slo-itl", 40) / 1000


def per_second(kind: str, spec: dict[str, Any]) -> None:
    if kind == "Server":
        spec["currentAlloc"]["load"]["arrivalRate"] /= 60


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda *_: None, []),
        (cents_as_dollars, ["accelerator"]),
        (seconds_as_ms, ["service class"]),
        (per_second, ["server"]),
    ],
)
def test_one_cause_of_absurd_numbers_is_one_line_for_the_fleet(
    mistake: Callable[[str, dict[str, Any]], None], told: list[str]
) -> None:
    documents = read_documents([str(ROOT / "samples/fleet")])
    for document in documents:
        content = cast("dict[str, Any]", document.content)
        mistake(content["kind"], content["spec"])
    lines: list[str] = []
    parse_system(documents, doubt=lines.extend)

    assert [line.partition(": ")[2].partition(" '")[0] for line in lines] == told
    assert all("; the same of " in line for line in lines)


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        f"apiVersion: {API_VERSION}\nkind: {LONG}\n",
        f"apiVersion: {API_VERSION}\nkind: Server\nmetadata: {{name: {LONG}}}\n",
        accelerator() + "---\n" + manifest("Server", {}, "s", LONG),
        accelerator("a") + "---\n" + manifest("Accelerator", {"name": "B"}, "b", LONG),
        accelerator(cost=0).replace("cost: 0", f"cost: {'9' * 5000}"),
    ],
)
def test_a_long_text_is_not_shown_whole(text: str, tmp_path: Path) -> None:
    refused = refusal(tmp_path, text)

    assert len(refused) < 1000
    assert "sys." not in refused
