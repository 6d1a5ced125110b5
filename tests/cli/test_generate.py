"""`inferno generate`: objects for autoscalers, or one line that names object and field."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from tests.cli.program import ROOT, SAMPLE, inferno, write
from tests.reference.shown import Shown
from tests.unit.operator import objects

Manifest = dict[str, Any]

A: Manifest = {"accelerator": "A", "name": "chat-a"}
B: Manifest = {
    "accelerator": "NVIDIA/B",
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "name": "chat-b",
}

ROLE: Manifest = {
    "accelerator": "B",
    "role": "Prefill",
    "apiVersion": "workload.serving.volcano.sh/v1alpha1",
    "kind": "ModelServing",
    "name": "chat",
}
SAME_NAME: list[Manifest] = [
    {"accelerator": "A", "role": "Prefill", "name": "chat"},
    {"accelerator": "A", "role": "Decode", "kind": "StatefulSet", "name": "chat"},
]


def server(
    name: str = "chat", *workloads: Manifest, namespace: str = "llm", **spec: object
) -> Manifest:
    fields = {"workloads": list(workloads or (A, B)), "actuation": "Publish", **spec}
    where: Manifest = {"namespace": namespace} if namespace else {}
    return objects.server(name.title(), spec=fields, name=name, **where)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "servers.yaml"


def generated(*arguments: str | Path) -> list[Manifest]:
    done = inferno("generate", *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return list(yaml.safe_load_all(done.stdout))


def test_keda_gets_an_object_for_each_workload_and_one_token_for_a_namespace(file: Path) -> None:
    found = generated("keda", write(file, server(), server("code", A | {"name": "code-a"})))

    names = [(item["kind"], item["metadata"]["name"]) for item in found]
    assert names == [
        ("TriggerAuthentication", "inferno-operator"),
        ("ScaledObject", "chat-a"),
        ("ScaledObject", "chat-b-leaderworkerset"),
        ("ScaledObject", "code-a"),
    ]
    assert {item["metadata"]["namespace"] for item in found} == {"llm"}
    assert [item["spec"]["triggers"][0]["metadata"]["url"] for item in found[1:]] == [
        "http://inferno-operator.inferno-system.svc:8081/v1/desired/llm/chat/A",
        "http://inferno-operator.inferno-system.svc:8081/v1/desired/llm/chat/NVIDIA%2FB",
        "http://inferno-operator.inferno-system.svc:8081/v1/desired/llm/code/A",
    ]


def test_service_token_bound_and_namespace_can_be_chosen(file: Path) -> None:
    options = ("--url=https://decisions/", "--token-secret=t", "--max-replicas=7")
    found = generated("keda", write(file, server(namespace="")), "--namespace=prod", *options)

    authentication, scaled, _ = found
    assert authentication["spec"]["secretTargetRef"][0]["name"] == "t"
    assert scaled["metadata"]["namespace"] == "prod"
    assert scaled["spec"]["maxReplicaCount"] == 7
    url = scaled["spec"]["triggers"][0]["metadata"]["url"]
    assert url == "https://decisions/v1/desired/prod/chat/A"


def test_the_comments_say_which_versions_are_needed(file: Path) -> None:
    for autoscaler in ("keda", "hpa"):
        text = inferno("generate", autoscaler, write(file, server("chat", A))).stdout.decode()

        assert "1.35" in text
        assert "HPAConfigurableTolerance" in text


def test_only_servers_with_workloads_are_taken_unless_they_are_named(file: Path) -> None:
    write(file, server(), objects.server("Other", namespace="llm"))

    assert len(generated("keda", file)) == 3
    refused = inferno("generate", "keda", file, "--server", "other")
    assert refused.stderr == (
        b"inferno: Server llm/other: spec.workloads: it is empty: name the objects to scale\n"
    )


@pytest.mark.parametrize(
    ("autoscaler", "given", "problem"),
    [
        ("keda", server(namespace=""), "Server chat: metadata.namespace: it is missing"),
        ("hpa", server(), "Server llm/chat: spec.workloads[1].accelerator: 'NVIDIA/B' cannot be"),
        ("hpa", server("s" * 64, A), f"Server llm/{'s' * 64}: metadata.name: "),
        ("keda", server("chat", A, ROLE), "Server llm/chat: spec.workloads[1].role: no autoscaler"),
        ("hpa", server("chat", *SAME_NAME), "Server llm/chat: spec.workloads[0].name: 'chat' is"),
    ],
)
def test_a_refusal_names_object_and_field(
    autoscaler: str, given: Manifest, problem: str, file: Path
) -> None:
    refused = inferno("generate", autoscaler, write(file, given))

    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.decode().startswith(f"inferno: {problem}")
    assert refused.stderr.count(b"\n") == 1


def test_a_workload_that_two_servers_name_is_refused(file: Path) -> None:
    refused = inferno("generate", "keda", write(file, server("chat", A), server("code", B, A)))

    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr == (
        b"inferno: Server llm/code: spec.workloads[1].name: 'chat-a' is the name of"
        b" Server llm/chat: spec.workloads[0] too\n"
    )


def test_an_unknown_server_and_files_without_workloads_are_refused(file: Path) -> None:
    unknown = inferno("generate", "keda", write(file, server()), "--server", "chet")
    none = inferno("generate", "keda", SAMPLE)

    assert (
        unknown.stderr == b"inferno: Server chet: there is none; did you mean chat? (known: chat)\n"
    )
    assert none.stderr.startswith(b"inferno: no Server has spec.workloads")


def test_a_server_that_the_operator_scales_too_is_warned_of(file: Path) -> None:
    done = inferno("generate", "keda", write(file, server(actuation="Scale")))

    assert done.returncode == 0
    assert done.stderr.startswith(b"warning: Server llm/chat: set spec.actuation to Publish, or")


def test_the_guide_shows_what_is_printed_for_its_server(file: Path) -> None:
    page = ROOT / "docs" / "guides" / "autoscalers.md"
    blocks = re.findall(r"^ +```yaml\n(.*?)^ +```", page.read_text(), re.MULTILINE | re.DOTALL)
    server, printed = map(dedent, blocks)
    file.write_text(server)

    assert Shown(page, "keda", printed).fits(inferno("generate", "keda", file).stdout.decode())


def test_kserve_gets_the_triggers_alone(file: Path) -> None:
    done = inferno("generate", "keda", "--for", "kserve", write(file, server()))
    found = list(yaml.safe_load_all(done.stdout))
    whole = generated("keda", file)

    assert [list(item) for item in found] == [["triggers"], ["triggers"]]
    assert [item["triggers"] for item in found] == [item["spec"]["triggers"] for item in whole[1:]]
    assert b"# Deployment llm/chat-a on A\n" in done.stdout
    assert whole[0]["metadata"]["name"].encode() in done.stdout.partition(b"triggers")[0]


def test_kserve_takes_no_hpa(file: Path) -> None:
    refused = inferno("generate", "hpa", "--for", "kserve", write(file, server("chat", A)))

    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.startswith(b"inferno: --for kserve: only KEDA has triggers")
