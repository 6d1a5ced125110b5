"""The chart's values: what each of them changes in what is rendered."""

import json
import re
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.runtime.ports import FieldManager
from inferno_operator.settings import Settings
from tests.deployment.rendering import (
    CHART,
    NAMESPACE,
    OVERLAYS,
    Manifest,
    copy_with_components,
    find,
    helm_template,
    kustomize,
)
from tests.deployment.rights import granted, granted_by_rules

DIGEST = "sha256:" + "0123456789abcdef" * 4
NAMES = ("inferno-operator", "inferno-optimizer")
"""Of the two Deployments, and of the labels of their pods."""

NAME = "app.kubernetes.io/name"


class Render(Protocol):
    """Renders with the remote optimizer, monitoring, and values of the test's own."""

    def __call__(self, **values: Any) -> list[Manifest]: ...  # noqa: ANN401 - YAML of any shape


@pytest.fixture
def rendered(helm: Path, tmp_path: Path) -> Render:
    def render(**values: Any) -> list[Manifest]:  # noqa: ANN401 - YAML of any shape
        file = tmp_path / "values.yaml"
        parts = {"remote": {"enabled": True}, "monitoring": {"enabled": True}}
        for name, part in values.items():
            parts[name] = parts[name] | part if name in parts else part
        file.write_text(yaml.safe_dump(parts))
        return helm_template(helm, "--values", file)

    return render


def pods(manifests: list[Manifest]) -> list[Manifest]:
    return [find(manifests, "Deployment", name)["spec"]["template"] for name in NAMES]


def test_a_digest_takes_the_place_of_the_tag(rendered: Render) -> None:
    image = {"repository": "registry.example.org/inferno", "tag": "1.2.3"}

    tagged, pinned = (rendered(image=image | more) for more in ({}, {"digest": DIGEST}))

    assert images(tagged) == {"registry.example.org/inferno:1.2.3"}
    assert images(pinned) == {f"registry.example.org/inferno@{DIGEST}"}


def images(manifests: list[Manifest]) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in pods(manifests)}


def test_labels_and_annotations_reach_all_pods_beside_their_own(rendered: Render) -> None:
    manifests = rendered(
        podLabels={"team": "serving", NAME: "other"}, podAnnotations={"example.org/note": "read"}
    )

    assert [pod["metadata"]["annotations"] for pod in pods(manifests)] == [
        {"example.org/note": "read"}
    ] * 2
    assert [pod["metadata"]["labels"] for pod in pods(manifests)] == [
        {NAME: name, "app.kubernetes.io/part-of": "inferno", "team": "serving"} for name in NAMES
    ]


@pytest.mark.parametrize(
    ("values", "prefix", "label"),
    [
        ({"nameOverride": "plan"}, "plan", "plan"),
        ({"fullnameOverride": "prod"}, "prod", "inferno"),
        ({"nameOverride": "plan", "fullnameOverride": "prod"}, "prod", "plan"),
    ],
    ids=str,
)
def test_names_and_selectors_begin_as_the_values_say(
    values: dict[str, str], prefix: str, label: str, rendered: Render
) -> None:
    names = dict(zip(NAMES, (f"{prefix}-operator", f"{prefix}-optimizer"), strict=True))
    others = {"image": {"repository": "i"}, "remote": {"tlsSecret": "t", "tokenSecret": "u"}}
    ours, default = (named(rendered(**others, **more)) for more in (values, {}))

    assert {m["metadata"]["name"].split("-")[0] for m in ours} == {prefix}
    assert without_names(ours, prefix, label) == without_names(default, "inferno", "inferno")
    for name, found in names.items():
        deployment = find(ours, "Deployment", found)
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels[NAME] == name.replace("inferno", label)
        assert deployment["spec"]["selector"]["matchLabels"] == {NAME: labels[NAME]}
        assert find(ours, "Service", found)["spec"]["selector"] == {NAME: labels[NAME]}


def named(manifests: list[Manifest]) -> list[Manifest]:
    """Those whose text has names of ours only as names."""
    return [m for m in manifests if m["kind"] not in ("CustomResourceDefinition", "PrometheusRule")]


def without_names(manifests: list[Manifest], prefix: str, label: str) -> str:
    """All manifests as text, without what names and labels begin with."""
    text = json.dumps(manifests)
    for app in ("operator", "optimizer"):
        text = text.replace(f'"{NAME}": "{label}-{app}"', f'"{NAME}": "{app}"')
    for own in ('["inferno-operator"]', '["inferno-operator-plan-key"]'):
        text = text.replace(f'"resourceNames": {own}', "")  # made by the operator, not by the chart
    kinds = "operator|optimizer|optimize|view|edit|approve|dashboard|plans"
    return re.sub(rf"\b{prefix}-({kinds})\b", r"\1", text)


@pytest.mark.parametrize(("part", "name"), [((), NAMES[0]), (("remote",), NAMES[1])])
def test_budgets_of_disruption_are_as_the_values_say(
    part: tuple[str, ...], name: str, rendered: Render
) -> None:
    def budget(**values: object) -> list[object]:
        group: dict[str, Any] = {"podDisruptionBudget": values}
        for outer in part:
            group = {outer: group}
        return [
            m["spec"]["minAvailable"]
            for m in rendered(**group)
            if (m["kind"], m["metadata"]["name"]) == ("PodDisruptionBudget", name)
        ]

    assert budget() == [1]
    assert budget(minAvailable="50%") == ["50%"]
    assert budget(enabled=False) == []


def test_pods_go_where_the_values_say(rendered: Render) -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["zone"]}}
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

    manifests = rendered(
        affinity=affinity, topologySpreadConstraints=[constraint], priorityClassName="important"
    )

    for name, pod in zip(NAMES, pods(manifests), strict=True):
        assert pod["spec"]["affinity"] == affinity
        assert pod["spec"]["priorityClassName"] == "important"
        assert pod["spec"]["topologySpreadConstraints"] == [
            constraint | {"labelSelector": {"matchLabels": {NAME: name}}}
        ]


def test_more_variables_can_come_from_elsewhere(rendered: Render) -> None:
    secret = {"secretKeyRef": {"name": "proxy", "key": "url"}}
    extra = [{"name": "HTTPS_PROXY", "valueFrom": secret}]

    operator, optimizer = pods(rendered(extraEnv=extra))

    assert operator["spec"]["containers"][0]["env"][-1:] == extra
    assert extra[0] not in optimizer["spec"]["containers"][0]["env"]


def test_a_variable_that_is_given_takes_the_place_of_that_of_another_value(
    rendered: Render,
) -> None:
    """Two of one name: an upgrade would merge them by name and keep the first."""
    given = {"INFERNO_STATELESS": False, "INFERNO_CYCLES": 10_000_000, "INFERNO_SHARE": 0.5}
    extra = [{"name": "INFERNO_HOST", "value": "other"}]

    operator, _ = pods(rendered(environment=given, extraEnv=extra))

    names = [variable["name"] for variable in operator["spec"]["containers"][0]["env"]]
    found = environment_of(operator)
    assert len(names) == len(set(names))
    assert [found[name] for name in given] == ["false", "10000000", "0.5"]
    assert (found["INFERNO_HOST"], found["INFERNO_PORT"]) == ("other", "8080")


def test_a_platform_may_assign_the_user(rendered: Render) -> None:
    chosen = [pod["spec"]["securityContext"] for pod in pods(rendered(fixedUser=False))]
    fixed = [pod["spec"]["securityContext"] for pod in pods(rendered())]

    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    user = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 65532)
    assert chosen == [restricted, restricted]
    assert fixed == [restricted | user, restricted | user]


def test_the_security_context_of_pods_takes_more_and_what_is_given_wins(rendered: Render) -> None:
    given = {"runAsUser": 1000680000, "seLinuxOptions": {"level": "s0:c26,c5"}}

    contexts = [pod["spec"]["securityContext"] for pod in pods(rendered(podSecurityContext=given))]

    assert (
        contexts
        == [
            {
                "runAsNonRoot": True,
                "runAsUser": 1000680000,
                "runAsGroup": 65532,
                "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
                "seLinuxOptions": {"level": "s0:c26,c5"},
            }
        ]
        * 2
    )


def test_more_volumes_reach_the_operator(rendered: Render) -> None:
    volume, mount = {"name": "ca", "configMap": {"name": "ca"}}, {"name": "ca", "mountPath": "/ca"}

    spec = pods(rendered(extraVolumes=[volume], extraVolumeMounts=[mount]))[0]["spec"]

    assert volume in spec["volumes"]
    assert mount in spec["containers"][0]["volumeMounts"]


def test_links_of_alerts_begin_with_the_address_of_the_project(rendered: Render) -> None:
    address = "https://git.example.com/inferno/"

    rule = find(rendered(monitoring={"runbookUrl": address}), "PrometheusRule", NAMES[0])
    links = [r["annotations"]["runbook_url"] for g in rule["spec"]["groups"] for r in g["rules"]]

    assert links
    assert all(link.startswith(f"{address}docs/troubleshooting/alerts.md#") for link in links)


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_read_as_often_as_the_values_say(name: str, rendered: Render) -> None:
    def interval(**monitoring: str) -> str | None:
        monitor = find(rendered(monitoring=monitoring), "ServiceMonitor", name)
        found: str | None = monitor["spec"]["endpoints"][0].get("interval")
        return found

    assert (interval(), interval(interval="15s")) == (None, "15s")


def test_names_are_resolved_on_every_platform(rendered: Render) -> None:
    policy = find(rendered(), "NetworkPolicy", "inferno-operator")
    rules = [rule for rule in policy["spec"]["egress"] if "to" in rule]

    def reached(port: int) -> list[Manifest]:
        both = [{"port": port, "protocol": protocol} for protocol in ("UDP", "TCP")]
        return [place for rule in rules if rule["ports"] == both for place in rule["to"]]

    openshift = {"kubernetes.io/metadata.name": "openshift-dns"}
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in reached(53)
    assert reached(5353) == [{"namespaceSelector": {"matchLabels": openshift}}]


@pytest.mark.parametrize("create", [True, False])
def test_the_account_can_be_another_one(*, create: bool, rendered: Render) -> None:
    annotations = {"example.org/role": "reader"}
    manifests = rendered(
        serviceAccount={"create": create, "name": "planner", "annotations": annotations}
    )
    accounts = {
        item["metadata"]["name"]: item["metadata"].get("annotations")
        for item in manifests
        if item["kind"] == "ServiceAccount"
    }

    assert accounts == ({"planner": annotations} if create else {}) | {"inferno-optimizer": None}
    assert pods(manifests)[0]["spec"]["serviceAccountName"] == "planner"
    assert granted(manifests, f"{NAMESPACE}:planner") == granted(
        rendered(), f"{NAMESPACE}:inferno-operator"
    )


def test_an_account_that_is_there_already_has_to_be_named(helm: Path) -> None:
    refused = subprocess.run(
        [helm, "template", CHART, "--kube-version=1.34", "--set=serviceAccount.create=false"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "/serviceAccount/name" in refused.stderr


def test_prometheus_can_select_by_labels(rendered: Render) -> None:
    manifests = rendered(monitoring={"labels": {"release": "prometheus", NAME: "other"}})

    labels = [
        (item["kind"], item["metadata"]["labels"]["release"], item["metadata"]["labels"][NAME])
        for item in manifests
        if item["apiVersion"].startswith("monitoring.coreos.com/")
    ]
    assert sorted(labels) == [
        ("PrometheusRule", "prometheus", NAMES[0]),
        ("ServiceMonitor", "prometheus", NAMES[0]),
        ("ServiceMonitor", "prometheus", NAMES[1]),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_network_policy_lets_in_prometheus_where_it_is(name: str, rendered: Render) -> None:
    manifests = rendered(monitoring={"namespace": "observability"})
    policy = find(manifests, "NetworkPolicy", name)

    assert lets_in(policy, "observability")
    assert lets_in(policy, "elsewhere", metrics="enabled")
    assert not lets_in(policy, "elsewhere")


@pytest.mark.parametrize("name", NAMES)
def test_the_component_lets_in_prometheus_too(name: str, kubectl: Path, tmp_path: Path) -> None:
    overlay = copy_with_components(tmp_path, "remote", "monitoring", "monitoring-optimizer")
    without, with_it = kustomize(kubectl, OVERLAYS / "remote"), kustomize(kubectl, overlay)

    assert not lets_in(find(without, "NetworkPolicy", name), "monitoring")
    assert lets_in(find(with_it, "NetworkPolicy", name), "monitoring")


def lets_in(policy: Manifest, namespace: str, **labels: str) -> bool:
    """Whether pods of a namespace may connect; the API server labels each with its name."""
    has = {"kubernetes.io/metadata.name": namespace, **labels}
    (rule,) = policy["spec"]["ingress"]
    wanted = [peer.get("namespaceSelector") for peer in rule["from"]]
    return any(s is not None and s["matchLabels"].items() <= has.items() for s in wanted)


PROMETHEUS = {"url": "https://prometheus.monitoring.svc:9091/prefix"}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
FOLDER = "/var/run/secrets/inferno/prometheus"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        ({"tokenSecret": "t"}, {"token": f"{FOLDER}/token"}),
        ({"serviceAccountToken": True}, {"token": f"{ACCOUNT}/token"}),
        (
            {"user": "inferno", "passwordSecret": "p"},
            {"user": "inferno", "password": f"{FOLDER}/password"},
        ),
        ({"headersSecret": "h"}, {"headers": f"{FOLDER}/headers"}),
        (
            {"tlsSecret": "c"},
            {"certificate": f"{FOLDER}/tls.crt", "key": f"{FOLDER}/tls.key"},
        ),
        ({"caConfigMap": "a"}, {"authority": f"{FOLDER}/ca.crt"}),
        (
            {"params": {"namespace": "prod & test", "dedup": "true"}},
            {"params": (("dedup", "true"), ("namespace", "prod & test"))},
        ),
        ({"timeout": 2.5}, {"timeout": 2.5}),
    ],
    ids=str,
)
def test_the_operator_is_told_where_prometheus_is_and_has_the_files_for_it(
    values: dict[str, Any], expected: dict[str, Any], rendered: Render
) -> None:
    operator, optimizer = pods(rendered(prometheus={**PROMETHEUS, **values, "interval": 15}))

    settings = Settings.from_environment(environment_of(operator))
    found = settings.prometheus
    assert found is not None
    assert settings.measure_interval == 15
    changed = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(found).items()
        if value != asdict(PrometheusEndpoint(PROMETHEUS["url"]))[name]
    }
    assert changed == expected
    files = {value for value in changed.values() if str(value).startswith(FOLDER)}
    assert files == projected(operator)
    assert not any("PROMETHEUS" in name for name in environment_of(optimizer))


def test_sources_in_a_config_map_are_mounted_where_the_operator_reads_them(
    rendered: Render,
) -> None:
    operator, _ = pods(rendered(prometheus={**PROMETHEUS, "sourcesConfigMap": "mine"}))

    settings = Settings.from_environment(environment_of(operator))

    assert str(settings.measure_sources) == f"{FOLDER}/sources.yaml"
    assert projected(operator) == {f"{FOLDER}/sources.yaml"}


def environment_of(pod: Manifest) -> dict[str, str]:
    variables = pod["spec"]["containers"][0]["env"]
    return {variable["name"]: variable.get("value", "") for variable in variables}


def projected(pod: Manifest) -> set[str]:
    """Paths of the files that the volume for Prometheus has."""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    if "prometheus" not in volumes:
        assert "prometheus" not in mounts
        return set()
    assert pod["spec"]["securityContext"]["fsGroup"] == 65532
    return {
        f"{mounts['prometheus']['mountPath']}/{item['path']}"
        for source in volumes["prometheus"]["projected"]["sources"]
        for part in source.values()
        for item in part["items"]
    }


def test_without_a_url_nothing_is_measured(rendered: Render) -> None:
    operator, _ = pods(rendered(prometheus={"tokenSecret": "t"}))

    assert not any("PROMETHEUS" in name for name in environment_of(operator))
    assert projected(operator) == set()


@pytest.mark.parametrize(
    ("values", "reached"),
    [
        ({}, [("monitoring", {}), ("monitoring", {"app": "thanos"})]),
        ({"podLabels": {"app": "thanos"}}, [("monitoring", {"app": "thanos"})]),
        ({"namespace": "elsewhere"}, [("elsewhere", {})]),
        (
            {"namespace": ""},
            [("monitoring", {}), ("monitoring", {"app": "thanos"}), ("elsewhere", {})],
        ),
        ({"url": ""}, []),
    ],
    ids=str,
)
def test_the_network_policy_lets_the_operator_reach_prometheus_only(
    values: dict[str, Any], reached: list[tuple[str, dict[str, str]]], rendered: Render
) -> None:
    pods_there: list[tuple[str, dict[str, str]]] = [
        ("monitoring", {}),
        ("monitoring", {"app": "thanos"}),
        ("elsewhere", {}),
    ]
    policy = find(
        rendered(prometheus={**PROMETHEUS, "port": 9091, **values}), "NetworkPolicy", NAMES[0]
    )

    assert [pod for pod in pods_there if reaches(policy, *pod, port=9091)] == reached


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({}, set()),
        ({"remote": {"host": "optimizer.example.com"}}, {8080, 3302}),
        ({"remote": {"host": "o.example.com", "port": 80, "podPort": 80}}, {80}),
        ({"environment": {"INFERNO_HOST": "o.inferno.svc", "INFERNO_PORT": "80"}}, {80, 3302}),
        ({"environment": {"INFERNO_HOST": "o.inferno.svc", "INFERNO_PORT": 81}}, {81, 3302}),
        ({"environment": {"INFERNO_HOST": "o.inferno.svc"}}, {8080, 3302}),
        (
            {
                "extraEnv": [
                    {"name": "INFERNO_HOST", "valueFrom": {}},
                    {"name": "INFERNO_PORT", "value": "82"},
                ]
            },
            {82, 3302},
        ),
    ],
    ids=str,
)
def test_the_network_policy_lets_the_operator_reach_the_host_that_is_configured(
    values: dict[str, Any], ports: set[int], rendered: Render
) -> None:
    remote = {"enabled": False, **values.pop("remote", {})}
    policy = find(rendered(remote=remote, **values), "NetworkPolicy", NAMES[0])

    opened = {
        port for port in (80, 81, 82, 3302, 8080) if reaches(policy, "anywhere", {}, port=port)
    }
    assert opened == ports


def reaches(policy: Manifest, namespace: str, labels: dict[str, str], port: int) -> bool:
    """Whether the pods of a policy may connect to a pod."""
    return any(
        {"port": port} in rule["ports"]
        and any(selects(peer, namespace, labels) for peer in rule.get("to", [{}]))
        for rule in policy["spec"]["egress"]
    )


def selects(peer: Manifest, namespace: str, labels: dict[str, str]) -> bool:
    """Whether a peer of a rule selects a pod in another namespace; without selectors it does."""
    if "podSelector" in peer and "namespaceSelector" not in peer:
        return False
    named = peer.get("namespaceSelector", {}).get("matchLabels", {})
    wanted = peer.get("podSelector", {}).get("matchLabels", {})
    has = {"kubernetes.io/metadata.name": namespace}
    return bool(named.items() <= has.items() and wanted.items() <= labels.items())


def test_with_a_token_keda_may_read_decisions(rendered: Render) -> None:
    publish = {"tokenSecret": "t", "namespace": "autoscaling", "wvaMetrics": True}
    manifests = rendered(publish=publish)
    operator, _ = pods(manifests)

    settings = Settings.from_environment(environment_of(operator))
    (mount,) = (
        item
        for item in operator["spec"]["containers"][0]["volumeMounts"]
        if item["name"] == "publish"
    )
    (volume,) = (item for item in operator["spec"]["volumes"] if item["name"] == "publish")
    assert settings.wva_metrics
    assert str(settings.publish_token) == f"{mount['mountPath']}/token"
    assert volume["secret"]["secretName"] == "t"
    assert operator["spec"]["securityContext"]["fsGroup"] == 65532
    _, rule = find(manifests, "NetworkPolicy", NAMES[0])["spec"]["ingress"]
    (peer,) = rule["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "autoscaling"
    }
    (port,) = find(manifests, "Service", NAMES[0])["spec"]["ports"]
    assert rule["ports"] == [{"port": port["targetPort"]}]


def test_without_a_token_nobody_reads_decisions(rendered: Render) -> None:
    manifests = rendered()
    operator, _ = pods(manifests)

    settings = Settings.from_environment(environment_of(operator))
    assert (settings.publish_token, settings.wva_metrics) == (None, False)
    assert len(find(manifests, "NetworkPolicy", NAMES[0])["spec"]["ingress"]) == 1


def test_publishing_takes_no_right(rendered: Render) -> None:
    account = f"{NAMESPACE}:inferno-operator"

    assert granted(rendered(publish={"tokenSecret": "t"}), account) == granted(rendered(), account)


def test_two_releases_have_no_object_in_common_but_definitions(helm: Path) -> None:
    options = [
        "--set=modelBooster=kthena",
        "--set=crds.install=false",
        "--set=monitoring.enabled=true",
    ]

    releases = [
        helm_template(helm, *options, f"--namespace={namespace}", release=release)
        for release, namespace in (("a", "one"), ("b", "one"), ("a", "two"), ("a-two", "two"))
    ]

    names = [
        (item["kind"], item["metadata"]["name"])
        for release in releases
        for item in release
        if "namespace" not in item["metadata"]
    ]
    assert len(names) >= 4 * 7
    assert len(set(names)) == len(names)


def test_only_the_kinds_that_are_named_can_be_scaled(rendered: Render) -> None:
    account = f"{NAMESPACE}:inferno-operator"
    widgets = [{"group": "example.com", "resources": ["widgets"]}]
    before = granted(rendered(workloads=[]), account)

    added = granted(rendered(workloads=widgets), account) - before

    assert {(right.group, right.resource, right.verb) for right in added} == {
        ("example.com", "widgets", "list"),
        ("example.com", "widgets", "watch"),
        ("example.com", "widgets/scale", "get"),
        ("example.com", "widgets/scale", "patch"),
        ("", "pods", "list"),
        ("", "pods", "watch"),
        ("autoscaling", "horizontalpodautoscalers", "list"),
    }
    assert not any(right.group == "apps" for right in before)


OF_NODES = {("", "nodes", "list"), ("", "nodes", "watch")}
OF_PODS = {("", "pods", "list"), ("", "pods", "watch")}
OF_LIMITS = {
    ("", "resourcequotas", "list"),
    ("karpenter.sh", "nodepools", "list"),
    ("kueue.x-k8s.io", "clusterqueues", "list"),
    ("kueue.x-k8s.io", "localqueues", "list"),
    ("kueue.x-k8s.io", "resourceflavors", "list"),
}
OF_SELECTORS = {
    (kinds["group"], f"{resource}/scale", "get")
    for kinds in yaml.safe_load((CHART / "values.yaml").read_text())["workloads"]
    for resource in kinds["resources"]
}
"""The selectors of the kinds of workloads that Servers may name."""


@pytest.mark.parametrize(
    ("values", "added"),
    [
        ({}, OF_NODES | OF_LIMITS),
        ({"namespaced": True}, OF_NODES | OF_LIMITS),
        ({"actuation": False}, OF_NODES | OF_LIMITS | OF_PODS | OF_SELECTORS),
        ({"workloads": []}, OF_NODES | OF_LIMITS | OF_PODS),
    ],
    ids=["cluster", "namespaced", "no actuation", "no workloads"],
)
def test_the_right_to_count_nodes_is_granted_where_a_value_asks_for_it(
    values: dict[str, Any], added: set[tuple[str, str, str]], rendered: Render
) -> None:
    account = f"{NAMESPACE}:inferno-operator"
    without, counting = rendered(**values), rendered(**values, capacity={"fromNodes": True})
    before, after = granted(without, account), granted(counting, account)

    assert {(right.group, right.resource, right.verb) for right in after - before} == added
    assert before < after
    assert sum(map(len, granted_by_rules(counting, account))) == len(after)


def test_nodes_and_pods_are_those_of_the_cluster_also_for_one_namespace(rendered: Render) -> None:
    manifests = rendered(namespaced=True, capacity={"fromNodes": True})
    (role,) = [m for m in manifests if m["kind"] == "ClusterRole" and "capacity" in str(m)]
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}

    assert {"nodes", "pods"} <= resources


CONSOLE = {"enabled": True, "origin": "https://inferno.example.com"}


def test_without_a_word_there_is_no_console(rendered: Render) -> None:
    assert not [m for m in rendered() if m["metadata"]["name"] == "inferno-console"]


def test_the_console_has_no_rights_and_no_token(rendered: Render) -> None:
    manifests = rendered(console=CONSOLE)
    pod = find(manifests, "Deployment", "inferno-console")["spec"]["template"]["spec"]

    assert granted(manifests, f"{NAMESPACE}:{pod['serviceAccountName']}") == frozenset()
    assert pod["serviceAccountName"] == "inferno-console"
    assert pod["automountServiceAccountToken"] is False
    assert not [m for m in manifests if m["kind"] == "Ingress"]


def test_what_is_said_of_all_pods_is_said_of_the_console(rendered: Render) -> None:
    common: dict[str, Any] = {
        "image": {"repository": "registry.example.org/inferno", "digest": DIGEST},
        "podLabels": {"team": "serving"},
        "nodeSelector": {"disk": "ssd"},
        "fixedUser": False,
        "fullnameOverride": "planner",
        "networkPolicy": False,
    }
    manifests = rendered(console=CONSOLE, **common)
    template = find(manifests, "Deployment", "planner-console")["spec"]["template"]

    (container,) = template["spec"]["containers"]
    assert container["image"] == f"registry.example.org/inferno@{DIGEST}"
    assert template["metadata"]["labels"]["team"] == "serving"
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert "runAsUser" not in template["spec"]["securityContext"]
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert not [m for m in manifests if m["kind"] == "NetworkPolicy"]
    selected = find(manifests, "Service", "planner-console")["spec"]["selector"]
    assert selected.items() <= template["metadata"]["labels"].items()


def test_the_console_has_the_address_and_the_secret_that_are_named(rendered: Render) -> None:
    named = {"tlsSecret": "pages-tls", "resources": {"limits": {"memory": "1Gi"}}}
    pod = find(rendered(console={**CONSOLE, **named}), "Deployment", "inferno-console")["spec"]
    spec = pod["template"]["spec"]

    (container,) = spec["containers"]
    origin = next(variable for variable in container["env"] if variable["name"] == "ORIGIN")
    secrets = {v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert secrets == {"pages-tls"}
    assert origin["value"] == "https://inferno.example.com"
    assert container["resources"]["limits"] == {"memory": "1Gi"}


ADMISSION = "inferno-admission"


def is_asked(manifests: list[Manifest]) -> bool:
    return any(m["kind"] == "ValidatingWebhookConfiguration" for m in manifests)


def test_the_api_server_asks_where_cert_manager_is_unless_a_value_says_otherwise(
    helm: Path,
) -> None:
    there = "--api-versions=cert-manager.io/v1"

    assert is_asked(helm_template(helm, there))
    assert not is_asked(helm_template(helm))
    assert not is_asked(helm_template(helm, there, "--set=admission.enabled=false"))
    assert is_asked(helm_template(helm, "--set=admission.enabled=true"))
    assert not is_asked(helm_template(helm, there, "--set=namespaced=true"))


def test_the_api_server_waits_shortly_and_stores_objects_without_an_answer(
    rendered: Render,
) -> None:
    manifests = rendered(admission={"enabled": True})
    (hook,) = next(m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")[
        "webhooks"
    ]
    found = (hook["failurePolicy"], hook["timeoutSeconds"], hook["sideEffects"])

    assert found == ("Ignore", 2, "None")


def test_the_api_server_asks_about_the_writes_of_no_operator(rendered: Render) -> None:
    manifests = rendered(admission={"enabled": True}, serviceAccount={"name": "planner"})
    hook = next(m for m in manifests if m["kind"] == "ValidatingWebhookConfiguration")
    (condition,) = hook["webhooks"][0]["matchConditions"]
    (prefix,) = re.findall(r"fieldManager\.startsWith\('(.*)'\)", condition["expression"])

    assert "planner" not in condition["expression"]
    assert [name for name in FieldManager if not name.startswith(prefix)] == [FieldManager.KUBECTL]


def test_the_process_that_is_asked_may_only_read(rendered: Render) -> None:
    manifests = rendered(admission={"enabled": True})

    rights = granted(manifests, f"{NAMESPACE}:{ADMISSION}")

    assert {right.verb for right in rights} == {"list", "watch"}


def test_what_is_said_of_all_pods_is_said_of_the_one_that_is_asked(rendered: Render) -> None:
    manifests = rendered(
        admission={"enabled": True}, nameOverride="plan", podLabels={"team": "serving"}
    )
    template = find(manifests, "Deployment", "plan-admission")["spec"]["template"]
    service = find(manifests, "Service", "plan-admission")

    assert template["metadata"]["labels"].items() >= service["spec"]["selector"].items()
    assert template["metadata"]["labels"]["team"] == "serving"
    assert find(manifests, "Certificate", "plan-admission")["spec"]["dnsNames"] == [
        f"plan-admission.{NAMESPACE}.svc"
    ]
