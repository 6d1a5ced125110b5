"""What the original fails its users in, and we do better: an item of the list in each class."""

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from inferno_operator.boosters.booster import Booster, read_booster
from inferno_operator.boosters.dialects import KTHENA, MATRIXINFER
from inferno_operator.boosters.plan import Plan, plan
from inferno_operator.boosters.status import status_of
from tests.unit.operator.model_booster.boosters import (
    LABEL,
    METRICS,
    Manifest,
    asking,
    available,
    backend,
    booster,
    child,
    children,
    conditions,
    container,
    disaggregated,
    manifest,
    pod,
    stored,
    stored_all,
    worker,
)

AFFINITY = {"podAntiAffinity": {"some": "terms"}}
REVISION = LABEL + "revision"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, tzinfo=UTC)


def serving_of(*backends: Manifest) -> Manifest:
    return child(children(booster(*backends)), "ModelServing")


def decide(wanted: Booster, *present: Manifest) -> Plan:
    return plan(wanted, present, KTHENA)


def applied(decided: Plan) -> dict[tuple[str, str], Manifest]:
    return {
        (a.kind.kind, a.manifest["metadata"]["name"]): dict(a.manifest) for a in decided.applies
    }


def deleted(decided: Plan) -> list[tuple[str, str]]:
    return [(d.kind.kind, d.key.name) for d in decided.deletes]


class TestRevision:
    """Replicas, weights, costs and policies roll no pods."""

    @pytest.mark.parametrize(
        "change",
        [
            {"minReplicas": 2, "maxReplicas": 5},
            {"routeWeight": 7},
            {"scalingCost": 9},
            {"scaleToZeroGracePeriod": "60s"},
            {"autoscalingPolicy": METRICS},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_what_pods_do_not_know_changes_neither_template_nor_revision(
        self, change: Manifest
    ) -> None:
        before, after = serving_of(backend()), serving_of(backend(**change))

        assert after["spec"]["template"] == before["spec"]["template"]
        assert after["metadata"]["labels"][REVISION] == before["metadata"]["labels"][REVISION]

    @pytest.mark.parametrize(
        "change",
        [
            {"workers": [worker(image="vllm:2")]},
            {"env": [{"name": "A", "value": "b"}]},
            {"loraAdapters": [{"name": "x", "artifactURL": "s3://x"}]},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_what_pods_are_made_of_changes_the_revision(self, change: Manifest) -> None:
        before, after = serving_of(backend()), serving_of(backend(**change))

        assert after["metadata"]["labels"][REVISION] != before["metadata"]["labels"][REVISION]

    def test_the_labels_of_pods_are_without_a_revision(self) -> None:
        entry = serving_of()["spec"]["template"]["roles"][0]["entryTemplate"]

        assert REVISION not in entry["metadata"]["labels"]


class TestReplicas:
    """Replicas belong to who scales."""

    scaled = backend(maxReplicas=5, autoscalingPolicy=METRICS)

    def replicas(self, wanted: Booster, current: Manifest) -> int | None:
        """What is there after the plan."""
        written = applied(decide(wanted, current)).get(("ModelServing", "m-a"), current)
        replicas: int | None = written["spec"].get("replicas", current["spec"]["replicas"])
        return replicas

    @pytest.mark.parametrize(("now", "then"), [(1, 1), (3, 3), (5, 5), (0, 1), (9, 5)])
    def test_an_autoscaler_is_free_within_the_bounds(self, now: int, then: int) -> None:
        current = stored(serving_of(self.scaled), replicas_by="autoscaler", replicas=now)

        assert self.replicas(booster(self.scaled), current) == then

    def test_a_new_template_keeps_the_replicas_of_the_autoscaler(self) -> None:
        current = stored(serving_of(self.scaled), replicas_by="autoscaler", replicas=3)
        newer = {**self.scaled, "workers": [worker(image="vllm:2")]}

        assert self.replicas(booster(newer), current) == 3

    def test_without_autoscaling_the_booster_says_how_many(self) -> None:
        current = stored(serving_of(), replicas=1)
        wanted = booster(backend(minReplicas=4, maxReplicas=4))

        assert self.replicas(wanted, current) == 4

    def test_what_the_plan_has_set_stays_even_out_of_bounds(self) -> None:
        current = stored(serving_of(), replicas_by="inferno-operator", replicas=3)
        wanted = booster(backend(workers=[worker(image="vllm:2")]))

        assert self.replicas(wanted, current) == 3


class TestDrift:
    """What others changed of ours is mended, and what they added is left."""

    def test_nothing_is_written_when_nothing_changed(self) -> None:
        present = stored_all(children(booster()))

        assert decide(booster(), *present) == Plan()

    @pytest.mark.parametrize("kind", ["ModelServing", "ModelServer", "ModelRoute"])
    def test_an_edit_is_mended(self, kind: str) -> None:
        present = stored_all(children(booster()))
        edited = child(present, kind)
        field = {"ModelServing": "schedulerName", "ModelServer": "model", "ModelRoute": "modelName"}
        edited["spec"] = {**edited["spec"], field[kind]: "somebody-elses"}

        (action,) = decide(booster(), *present).applies

        assert action.manifest["kind"] == kind

    def test_defaults_and_labels_of_others_are_no_drift(self) -> None:
        present = stored_all(children(booster()))
        server = child(present, "ModelServer")
        server["spec"] = {**server["spec"], "workloadPort": {"port": 8000, "protocol": "http"}}
        server["metadata"]["labels"] = {**server["metadata"]["labels"], "team": "blue"}

        assert decide(booster(), *present) == Plan()


class TestRemoved:
    """What is not wanted any more goes, in an order that no reader stumbles over."""

    def test_policy_and_binding_go_with_the_policy_of_the_spec(self) -> None:
        scaled = booster(backend(autoscalingPolicy=METRICS))
        decided = decide(booster(), *stored_all(children(scaled)))

        assert deleted(decided) == [
            ("AutoscalingPolicyBinding", "m-a"),
            ("AutoscalingPolicy", "m-a"),
        ]

    def test_a_policy_that_moves_to_the_model_leaves_nothing_behind(self) -> None:
        scaled = booster(backend(autoscalingPolicy=METRICS))
        moved = booster(backend(scalingCost=1), autoscalingPolicy=METRICS)
        decided = decide(moved, *stored_all(children(scaled)))

        assert deleted(decided) == [
            ("AutoscalingPolicyBinding", "m-a"),
            ("AutoscalingPolicy", "m-a"),
        ]
        new = [action.kind.kind for action in decided.applies if action.new]
        assert new == ["AutoscalingPolicy", "AutoscalingPolicyBinding"]

    def test_all_of_a_removed_backend_goes(self) -> None:
        both = booster(backend("a"), backend("b", autoscalingPolicy=METRICS))
        decided = decide(booster(backend("a")), *stored_all(children(both)))

        assert deleted(decided) == [
            ("AutoscalingPolicyBinding", "m-b"),
            ("AutoscalingPolicy", "m-b"),
            ("ModelServer", "m-b"),
            ("ModelServing", "m-b"),
        ]

    def test_a_policy_comes_before_its_binding(self) -> None:
        kinds = [c["kind"] for c in children(booster(backend(autoscalingPolicy=METRICS)))]

        assert kinds.index("AutoscalingPolicy") < kinds.index("AutoscalingPolicyBinding")


class TestGang:
    """Gang scheduling is off unless asked for, and its policy is never written anew."""

    def test_it_is_off_by_default(self) -> None:
        assert "gangPolicy" not in serving_of()["spec"]["template"]

    def test_it_is_switched_off_where_it_would_be_on(self) -> None:
        model = booster(dialect=MATRIXINFER)
        infer = child(children(model, MATRIXINFER), "ModelInfer")

        assert infer["spec"]["template"]["gangSchedule"] == {"enable": False}

    def test_it_is_on_where_an_annotation_asks_for_it(self) -> None:
        wanted = asking("gang-scheduling", backend(workers=[worker(replicas=2)]))
        spec = child(children(wanted), "ModelServing")["spec"]

        assert spec["template"]["gangPolicy"] == {"minRoleReplicas": {"leader": 2}}
        assert spec["schedulerName"] == "volcano"

    def test_a_policy_that_is_there_stays_as_it_is_and_is_remarked_upon(self) -> None:
        before = asking("gang-scheduling", backend(workers=[worker(replicas=2)]))
        after = asking("gang-scheduling", backend(workers=[worker(replicas=3)]))

        decided = decide(after, *stored_all(children(before)))

        (written,) = applied(decided).values()
        assert written["spec"]["template"]["gangPolicy"] == {"minRoleReplicas": {"leader": 2}}
        assert "gang policy" in decided.remarks[0]


class TestSelector:
    """Each ModelServer finds the pods of its own backend."""

    @pytest.mark.parametrize("one", [backend(), disaggregated()], ids=["vLLM", "disaggregated"])
    def test_all_entry_pods_have_the_labels_of_the_selector(self, one: Manifest) -> None:
        made = children(booster(one))
        selector = child(made, "ModelServer")["spec"]["workloadSelector"]["matchLabels"]
        roles = child(made, "ModelServing")["spec"]["template"]["roles"]

        assert set(selector) == {LABEL + "model-uid", LABEL + "backend-name"}
        for role in roles:
            assert role["entryTemplate"]["metadata"]["labels"].items() >= selector.items()

    def test_backends_of_one_booster_are_told_apart(self) -> None:
        made = children(booster(backend("a"), backend("b")))
        selectors = [
            child(made, "ModelServer", name)["spec"]["workloadSelector"] for name in ("m-a", "m-b")
        ]

        assert selectors[0] != selectors[1]


class TestWorkers:
    """What a worker leaves out has a sensible meaning."""

    def test_no_config_means_no_flags_and_the_name_of_the_booster(self) -> None:
        made = children(booster())

        assert child(made, "ModelServer")["spec"]["model"] == "m"
        command = container(child(made, "ModelServing"), "engine")["command"]
        assert [part for part in command if part.startswith("--")] == [
            "--model",
            "--kv-events-config",
        ]

    @pytest.mark.parametrize(
        ("given", "replicas", "others"),
        [({}, 1, 0), ({"pods": 0}, 1, 0), ({"pods": 3}, 1, 2), ({"replicas": 0}, 0, 0)],
    )
    def test_replicas_and_pods(self, given: Manifest, replicas: int, others: int) -> None:
        (role,) = serving_of(backend(workers=[worker(**given)]))["spec"]["template"]["roles"]

        assert (role["replicas"], role["workerReplicas"]) == (replicas, others)


class TestCache:
    """Paths are absolute, and a claim is a claim."""

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
                "pvc://claim/some/folder/",
                {"persistentVolumeClaim": {"claimName": "claim"}},
                {"mountPath": "/claim", "subPath": "some/folder"},
            ),
            (
                "hostpath://var/x/",
                {"hostPath": {"path": "/var/x", "type": "DirectoryOrCreate"}},
                {"mountPath": "/var/x"},
            ),
        ],
        ids=["absent", "claim", "folder of a claim", "relative host path"],
    )
    def test_a_cache(self, uri: str | None, source: Manifest, mount: Manifest) -> None:
        given = backend()
        given.pop("cacheURI")
        serving = serving_of({**given, **({"cacheURI": uri} if uri else {})})

        volume = {"name": "a-weights"}
        assert pod(serving)["volumes"] == [{**volume, **source}]
        engine = container(serving, "engine")
        assert engine["volumeMounts"] == [{**volume, **mount}]
        directory = engine["command"][engine["command"].index("--model") + 1]
        assert directory.rpartition("/")[0] == mount["mountPath"]
        assert directory in pod(serving)["initContainers"][0]["args"]


class TestStatus:
    """What is told is true, and is told once."""

    def status(
        self, wanted: Booster, *present: Manifest, failures: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        return status_of(wanted, present, KTHENA, failures, (), NOW)

    def test_a_failure_is_cleared_once_it_is_over(self) -> None:
        failed = manifest()
        failed["status"] = self.status(booster(), failures=("no such worker",))
        assert conditions(failed["status"])["Failed"][0] == "True"

        after = self.status(read_booster(failed, KTHENA), *stored_all(children(booster())))

        assert conditions(after)["Failed"][0] == "False"

    def test_it_is_active_when_all_servings_are_available_and_stays_so(self) -> None:
        serving, *others = stored_all(children(booster()))
        before = manifest()
        before["status"] = self.status(booster(), available(serving), *others)
        assert conditions(before["status"])["Active"][0] == "True"

        wanted = read_booster(before, KTHENA)
        after = status_of(wanted, [available(serving), *others], KTHENA, (), (), LATER)

        assert after == before["status"]

    def test_a_serving_that_has_not_seen_its_spec_is_not_available(self) -> None:
        serving, *others = stored_all(children(booster()))
        serving["metadata"]["generation"] = 2
        stale = available(serving, observedGeneration=1)

        assert conditions(self.status(booster(), stale, *others))["Active"][0] == "False"

    def test_each_condition_tells_its_generation(self) -> None:
        status = self.status(booster())

        assert {c["observedGeneration"] for c in status["conditions"]} == {3}
        assert status["observedGeneration"] == 3

    def test_backends_are_told_in_their_order(self) -> None:
        wanted = booster(backend("z"), backend("a"))
        present = [available(item) for item in stored_all(children(wanted))]

        assert self.status(wanted, *reversed(present))["backendStatuses"] == [
            {"name": "m-z", "replicas": 1},
            {"name": "m-a", "replicas": 1},
        ]

    def test_initialized_stays_whatever_fails_later(self) -> None:
        good = manifest()
        good["status"] = self.status(booster(), *stored_all(children(booster())))

        later = self.status(read_booster(good, KTHENA), failures=("something",))

        assert conditions(later)["Initialized"][0] == "True"


class TestOneBadBackend:
    """The others are converted, and the bad one is named."""

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"type": "MindIE"}, "MindIE"),
            ({"workers": [worker(config=["a"])]}, "config"),
            ({"workers": [worker(type="decode")]}, "workers"),
            ({"minReplicas": 3}, "minReplicas"),
        ],
        ids=["MindIE", "config", "role", "bounds"],
    )
    def test_the_good_one_is_made(self, change: Manifest, named: str) -> None:
        decided = decide(booster(backend("good"), backend("bad", **change)))

        names = {name for _, name in applied(decided)}
        assert names == {"m-good", "m"}
        assert any(named in str(problem) for problem in decided.problems)
        assert {problem.backend for problem in decided.problems} == {"bad"}

    def test_what_runs_of_the_bad_one_goes_on_and_keeps_its_share(self) -> None:
        present = stored_all(children(booster(backend("good"), backend("bad"))))
        decided = decide(booster(backend("good"), backend("bad", minReplicas=3)), *present)

        assert decided.deletes == ()
        assert applied(decided) == {}

    def test_sglang_is_supported(self) -> None:
        made = children(booster(backend(type="SGLang")))

        assert child(made, "ModelServer")["spec"]["inferenceEngine"] == "SGLang"
        command = container(child(made, "ModelServing"), "engine")["command"]
        assert command[:3] == ["python3", "-m", "sglang.launch_server"]


class TestForeign:
    """A child of that name that is not ours is left alone."""

    def test_it_is_neither_written_nor_deleted_but_told(self) -> None:
        present = stored_all(children(booster()))
        foreign = child(present, "ModelServer")
        foreign["metadata"]["ownerReferences"] = [{"uid": "somebody-else"}]
        foreign["spec"] = {"model": "theirs"}

        decided = decide(booster(), *present)

        assert decided.applies == ()
        assert decided.deletes == ()
        assert ["ModelServer" in str(problem) for problem in decided.problems] == [True]

    def test_it_is_not_deleted_where_we_have_no_use_for_its_name(self) -> None:
        scaled = stored_all(children(booster(backend(autoscalingPolicy=METRICS))))
        for foreign in scaled[-2:]:  # policy and binding
            foreign["metadata"]["ownerReferences"] = [{"uid": "somebody-else"}]

        assert decide(booster(), *scaled).deletes == ()


class TestAdapters:
    """A change of adapters goes through the template: there is no other way, and no half of one."""

    def test_a_new_adapter_is_downloaded_loaded_and_routed(self) -> None:
        adapter = {"name": "sql", "artifactURL": "s3://adapters/sql"}
        made = children(booster(backend(loraAdapters=[adapter])))
        serving = child(made, "ModelServing")

        names = [each["name"] for each in pod(serving)["initContainers"]]
        assert names == ["m-model-downloader", "m-lora-downloader-0"]
        command = container(serving, "engine")["command"]
        folder = pod(serving)["initContainers"][1]["args"][-1]
        assert command[-3:] == ["--enable-lora", "--lora-modules", f"sql={folder}"]
        assert child(made, "ModelRoute")["spec"]["loraAdapters"] == ["sql"]


class TestValidation:
    """Nothing admits boosters in some clusters, so everything is checked here too."""

    @pytest.mark.parametrize(
        ("spec", "path"),
        [
            ({"costExpansionRatePercent": 200}, "spec.costExpansionRatePercent"),
            ({"autoscalingPolicy": METRICS}, "spec.backends[0].scalingCost"),
        ],
    )
    def test_the_whole(self, spec: Manifest, path: str) -> None:
        assert path in [problem.path for problem in decide(booster(**spec)).problems]

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"minReplicas": 2}, ".minReplicas"),
            ({"maxReplicas": 2}, ""),
            ({"minReplicas": 0, "autoscalingPolicy": METRICS}, ".minReplicas"),
            ({"scalingCost": 1}, ".scalingCost"),
            ({"scaleToZeroGracePeriod": "30s"}, ".scaleToZeroGracePeriod"),
            ({"workers": [worker(image="a b")]}, ".workers[0].image"),
            ({"workers": [worker(), worker()]}, ".workers"),
            ({"workers": [worker(type="prefill")]}, ".workers[0].type"),
            ({"loraAdapters": [{"name": "m", "artifactURL": "s3://a"}]}, ".loraAdapters[0].name"),
            (
                {"loraAdapters": [{"name": "x", "artifactURL": "s3://a"}] * 2},
                ".loraAdapters[1].name",
            ),
        ],
    )
    def test_a_backend(self, change: Manifest, path: str) -> None:
        found = [problem.path for problem in decide(booster(backend(**change))).problems]

        assert f"spec.backends[0]{path}" in found


class TestFlags:
    """Engines understand what they are told."""

    def flags(self, config: Manifest, **fields: object) -> list[str]:
        serving = serving_of(backend(workers=[worker(config=config, **fields)]))
        command: list[str] = container(serving, "engine")["command"]
        return command

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (1_000_000, ["1000000"]),
            (1_234_567, ["1234567"]),
            (0.9, ["0.9"]),
            ("", []),
            (["a", 1], ['["a",1]']),
            ({"a": {"b": True}}, ['{"a":{"b":true}}']),
        ],
        ids=str,
    )
    def test_values(self, value: object, written: list[str]) -> None:
        command = self.flags({"some_flag": value})
        start = command.index("--some-flag") + 1

        assert command[start : command.index("--kv-events-config")] == written

    def test_null_asks_for_no_flag(self) -> None:
        assert "--some-flag" not in self.flags({"some-flag": None})

    def test_with_several_pods_all_flags_reach_the_engine_whole(self) -> None:
        config = {"chat-template": "a b 'c' {d}"}
        command = self.flags(config, pods=2)
        engine = shlex.split(command[2].rpartition(" && ")[2])

        assert command[:2] == ["bash", "-c"]
        assert len(command) == 3
        assert engine[engine.index("--chat-template") + 1] == "a b 'c' {d}"
        events = engine[engine.index("--kv-events-config") + 1]
        assert json.loads(events)["topic"] == "kv-events"

    def test_a_text_with_a_placeholder_is_left_as_it_is(self) -> None:
        env = [{"name": "A", "value": "x${FOO}y"}]

        assert env[0] in container(serving_of(backend(env=env)), "engine")["env"]


class TestHardware:
    """Pods go where a worker says, and only Ascend's need Ascend nodes."""

    def test_the_affinity_of_a_worker_counts(self) -> None:
        for one in (
            backend(workers=[worker(affinity=AFFINITY)]),
            disaggregated({"affinity": AFFINITY}),
        ):
            assert pod(serving_of(one))["affinity"] == AFFINITY

    def test_pods_without_ascend_cards_may_run_anywhere(self) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}

        assert "affinity" not in pod(serving_of(disaggregated(gpu)))

    def test_pods_with_ascend_cards_go_to_their_nodes(self) -> None:
        npu = {"resources": {"requests": {"huawei.com/ascend-1980": "1"}}}

        assert "nodeAffinity" in pod(serving_of(disaggregated(npu)))["affinity"]

    @pytest.mark.parametrize(
        ("resources", "devices"),
        [
            ({"limits": {"nvidia.com/gpu": 4}}, 4),
            ({"requests": {"huawei.com/ascend-1980": "2"}}, 2),
            ({"limits": {"nvidia.com/gpu": 8}, "requests": {"nvidia.com/gpu": 8}}, 8),
            ({}, 0),
        ],
    )
    def test_devices_are_counted_by_limits_or_requests(
        self, resources: Manifest, devices: int
    ) -> None:
        serving = serving_of(backend(workers=[worker(pods=2, resources=resources)]))

        assert f"--num-gpus={devices} " in container(serving, "engine")["command"][2]


class TestKept:
    """What others depend on is as the original writes it."""

    def test_names_roles_containers_and_ports(self) -> None:
        made = children(booster(backend("a"), disaggregated()))
        single, split = child(made, "ModelServing", "m-a"), child(made, "ModelServing", "m-pd")

        roles = [r["name"] for s in (single, split) for r in s["spec"]["template"]["roles"]]
        assert roles == ["leader", "prefill", "decode"]
        assert [c["name"] for c in pod(single)["containers"]] == ["runtime", "engine"]
        assert [c["name"] for c in pod(split)["containers"]] == ["runtime", "vllm"]
        assert child(made, "ModelServer", "m-a")["spec"]["workloadPort"] == {"port": 8000}
        assert container(single, "runtime")["ports"] == [{"containerPort": 8100}]

    def test_a_folder_is_named_by_the_digest_of_its_source(self) -> None:
        uri = "s3://aios_models/deepseek-ai/DeepSeek-V3-W8A8/vllm-ascend"
        command = container(serving_of(backend(modelURI=uri)), "engine")["command"]

        assert "/weights/13a7c4d58031cdc502ca1bb4a592f2b9" in command

    def test_every_child_has_both_labels_of_its_manager_and_its_owner(self) -> None:
        for made in children(booster(backend(autoscalingPolicy=METRICS))):
            labels, (owner,) = made["metadata"]["labels"], made["metadata"]["ownerReferences"]

            assert labels[LABEL + "managed-by"] == "workload.serving.volcano.sh"
            assert labels["registry.volcano.sh/managed-by"] == "registry.volcano.sh"
            assert (owner["kind"], owner["uid"]) == ("ModelBooster", "uid-m")
            assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)

    def test_what_an_autoscaler_reads_is_there(self) -> None:
        env = [{"name": "RUNTIME_PORT", "value": "9000"}]
        made = children(booster(backend(autoscalingPolicy=METRICS, env=env)))
        target = child(made, "AutoscalingPolicyBinding")["spec"]["scalingConfiguration"]["target"]

        assert target["metricEndpoint"] == {"port": 9000}
        behavior = child(made, "AutoscalingPolicy")["spec"]["behavior"]
        assert behavior == {
            "scaleUp": {"stablePolicy": {}, "panicPolicy": {"period": "0s"}},
            "scaleDown": {},
        }
