"""What kustomize and Helm render: the same objects, whatever is chosen."""

import json
import re
import shutil
import subprocess
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.settings import Settings
from tests.conftest import ROOT
from tests.deployment.rendering import (
    CHART,
    NAMESPACE,
    OVERLAYS,
    RELEASE,
    Manifest,
    copy_with_components,
    find,
    helm_template,
    kustomize,
)
from tests.deployment.rights import granted

CHOICES = {
    "stateless": [],
    "stateful": ["--set=stateless=false"],
    "remote": ["--set=remote.enabled=true"],
    "namespaced": ["--set=namespaced=true"],
    "model-booster": ["--set=modelBooster=kthena"],
    "model-booster-matrixinfer": ["--set=modelBooster=matrixinfer"],
}
"""Helm's words for each overlay."""

PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"
"""That of the Prometheus Operator."""

OWN = f"{NAMESPACE}:inferno-operator"
"""The operator's account."""

HELMS_OWN = {
    *(f"app.kubernetes.io/{label}" for label in ("instance", "managed-by", "version")),
    *("helm.sh/chart", "helm.sh/resource-policy"),
}
"""Labels and annotations that only Helm puts on objects."""


def test_there_is_a_choice_for_each_overlay() -> None:
    assert {folder.name for folder in OVERLAYS.iterdir()} == CHOICES.keys()


@pytest.mark.parametrize("overlay", CHOICES)
def test_helm_and_kustomize_render_the_same_objects(
    overlay: str, helm: Path, kubectl: Path
) -> None:
    # Who uses Helm makes the namespace, or `--create-namespace` does.
    expected = [m for m in kustomize(kubectl, OVERLAYS / overlay) if m["kind"] != "Namespace"]

    rendered = helm_template(helm, *CHOICES[overlay])

    assert comparable(rendered) == comparable(expected)


def test_what_the_original_has_in_its_yamls_is_rendered_anew(kubectl: Path) -> None:
    """`make yamls` renders it; the sample beside it is a kustomization."""
    yamls = ROOT / "manifests" / "yamls"

    deployed = list(yaml.load_all((yamls / "deploy.yaml").read_text(), yaml.CSafeLoader))

    assert deployed == kustomize(kubectl, OVERLAYS / "stateless")
    assert kustomize(kubectl, yamls) == kustomize(kubectl, ROOT / "samples" / "small")


def test_the_right_to_scale_boosters_can_be_left_out_but_not_beside_their_controller(
    helm: Path,
) -> None:
    groups = {right.group for right in granted(helm_template(helm, "--set=actuation=false"), OWN)}
    served = helm_template(helm, "--set=actuation=false", *CHOICES["model-booster"])

    assert not any(group.endswith(("volcano.sh", "matrixinfer.ai")) for group in groups)
    assert comparable(served) == comparable(helm_template(helm, *CHOICES["model-booster"]))


def test_both_have_the_same_monitoring(helm: Path, kubectl: Path, tmp_path: Path) -> None:
    components = ("monitoring", "monitoring-optimizer", "metrics-token")
    overlay = copy_with_components(tmp_path, "remote", *components)
    expected = [m for m in kustomize(kubectl, overlay) if m["kind"] != "Namespace"]

    options = "--set=monitoring.enabled=true,metrics.tokenSecret=inferno-metrics-token"
    rendered = helm_template(helm, *CHOICES["remote"], options)

    assert dashboard(rendered) == dashboard(expected)
    assert comparable(rendered) == comparable(expected)


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("prometheus", f"prometheus.url={PROMETHEUS}"),
        ("publish", "publish.tokenSecret=inferno-publish-token"),
        (
            "publish-by-namespace",
            "publish.tokenSecret=inferno-publish-token,publish.byNamespace=true",
        ),
        ("metrics-token", "metrics.tokenSecret=inferno-metrics-token"),
        ("capacity", "capacity.fromNodes=true"),
        ("console", "console.enabled=true,console.origin=https://inferno.example.com"),
        ("admission", "admission.enabled=true"),
        (
            "optimizer-host",
            "remote.host=inferno-optimizer.inferno.svc.cluster.local,remote.port=80",
        ),
    ],
)
def test_a_value_of_the_chart_is_a_component_of_the_overlays(
    component: str, value: str, helm: Path, kubectl: Path, tmp_path: Path
) -> None:
    overlay = copy_with_components(tmp_path, "stateless", component)
    expected = [m for m in kustomize(kubectl, overlay) if m["kind"] != "Namespace"]

    rendered = helm_template(helm, f"--set={value}")

    assert comparable(rendered) == comparable(expected)


def test_the_overlay_that_the_page_of_the_installation_shows_has_prometheus_and_its_token(
    kubectl: Path, tmp_path: Path
) -> None:
    for part in ("crds", "manifests/kustomize"):
        shutil.copytree(ROOT / part, tmp_path / part)
    page = (ROOT / "docs" / "guides" / "install.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    overlay = tmp_path / "manifests" / "kustomize" / "overlays" / "own"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(shown)

    pod = find(kustomize(kubectl, overlay), "Deployment", "inferno-operator")["spec"]["template"]

    (container,) = pod["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in container["env"]}
    assert Settings.from_environment(variables).prometheus == PrometheusEndpoint(
        "https://prometheus.monitoring.svc:9090",
        token=Path("/var/run/secrets/inferno/prometheus/token"),
    )
    assert len(variables) == len(container["env"])
    assert {"temporary", "prometheus"} == {item["name"] for item in pod["spec"]["volumes"]}


def test_what_is_to_be_scraped_is_a_port_of_a_service(kubectl: Path, tmp_path: Path) -> None:
    overlay = copy_with_components(tmp_path, "remote", "monitoring", "monitoring-optimizer")
    manifests = kustomize(kubectl, overlay)

    scraped = {
        (service["metadata"]["name"], endpoint["port"])
        for monitor in manifests
        if monitor["kind"] == "ServiceMonitor"
        for service in manifests
        if service["kind"] == "Service" and selects(monitor, service)
        for endpoint in monitor["spec"]["endpoints"]
        if endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    }

    assert scraped == {("inferno-operator", "metrics"), ("inferno-optimizer", "https")}


def selects(monitor: Manifest, service: Manifest) -> bool:
    wanted: dict[str, str] = monitor["spec"]["selector"]["matchLabels"]
    labels: dict[str, str] = service["metadata"]["labels"]
    return wanted.items() <= labels.items()


def test_image_and_chart_have_the_version_of_the_project(kubectl: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    deployments = [
        manifest
        for manifest in kustomize(kubectl, OVERLAYS / "remote")
        if manifest["kind"] == "Deployment"
    ]

    images = {d["spec"]["template"]["spec"]["containers"][0]["image"] for d in deployments}

    assert images == {f"inferno-operator:{version}"}
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize(
    "options", [[], *CHOICES.values(), [f"--set=prometheus.url={PROMETHEUS}"]], ids=str
)
def test_the_chart_has_no_faults(options: list[str], helm: Path) -> None:
    linted = subprocess.run(
        [helm, "lint", "--strict", "--quiet", "--kube-version=1.34", CHART, *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (linted.returncode, linted.stderr) == (0, ""), linted.stdout


@pytest.mark.parametrize(
    ("copies", "source"),
    [("files/crds", "crds"), ("files", "manifests/kustomize/components/monitoring")],
)
def test_the_copies_of_the_chart_are_their_sources(copies: str, source: str) -> None:
    found = sorted(file for file in (CHART / copies).iterdir() if file.is_file())

    assert [file for file in found if file.is_symlink()] == []
    assert [f.name for f in found if f.read_bytes() != (ROOT / source / f.name).read_bytes()] == []


def test_the_chart_has_the_icon_of_the_console() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    icon = ROOT / "operator/inferno_operator/cli/kubectl/console/static/icon.svg"

    scheme, _, text = chart["icon"].partition(",")

    assert scheme == "data:image/svg+xml;base64"
    assert b64decode(text) == icon.read_bytes()


def test_the_chart_has_every_definition() -> None:
    def names(folder: Path) -> set[str]:
        return {file.name for file in folder.glob("*.yaml")}

    assert names(CHART / "files" / "crds") == names(ROOT / "crds")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("replica=3", "'replica' not allowed"),
        ("replicas=0", "/replicas"),
        ("modelBooster=on", "/modelBooster"),
        ("nameOverride=My_Name", "/nameOverride"),
        ("podDisruptionBudget.minAvailable=half", "/podDisruptionBudget/minAvailable"),
        ("remote.enabled=perhaps", "/remote/enabled"),
        ("console.enable=true", "'enable' not allowed"),
        ("console.enabled=true", "console.origin: give the address that browsers use"),
        ("console.origin=http://inferno.example.com", "/console/origin"),
        ("console.secret=own", "'secret' not allowed"),
        ("admission.enabled=perhaps", "/admission/enabled"),
        ("admission.enabled=true,namespaced=true", "admission.enabled: it reads all namespaces"),
        ("console.tlsSecret=3", "/console/tlsSecret"),
        ("prometheus.url=prometheus:9090", "/prometheus/url"),
        ("prometheus.url=http://user:password@prometheus", "/prometheus/url"),
        ("prometheus.user=inferno", "/prometheus/passwordSecret"),
        (
            "prometheus.user=inferno,prometheus.passwordSecret=p,prometheus.tokenSecret=t",
            "/prometheus/tokenSecret",
        ),
        ("prometheus.params.namespace=1", "/prometheus/params/namespace"),
        ("crds.keep=null", "at '/crds': missing property 'keep'"),
        ("stateless=null", "missing property 'stateless'"),
        ("image.repository=registry.example.com:5000/inferno:1.2", "/image/repository"),
        ("image.repository=registry.example.com/inferno@sha256:0", "/image/repository"),
        ("image.tag=1 2", "/image/tag"),
        ("prometheus.passwordSecret=p", "/prometheus/user"),
        ("publish.byNamespace=true", "/publish/tokenSecret"),
        ("remote.enabled=true,remote.host=elsewhere", "/remote/enabled"),
        ("remote.host=elsewhere,remote.port=0", "/remote/port"),
        ("remote.enabled=true,remote.minReplicas=9", "remote.minReplicas: 9 is more than"),
        ("resources.limit.memory=1Gi", "/resources': additional properties 'limit' not allowed"),
        ("console.resources.limits=1Gi", "/console/resources/limits"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(option: str, told: str, helm: Path) -> None:
    refused = subprocess.run(
        [helm, "template", CHART, "--kube-version=1.34", "--set", option],
        capture_output=True,
        text=True,
        check=False,
    )

    assert refused.returncode != 0
    assert told in refused.stderr


@pytest.mark.parametrize("name", yaml.safe_load((CHART / "values.yaml").read_text()))
def test_a_heading_that_was_left_empty_is_named_or_means_nothing(name: str, helm: Path) -> None:
    """As where all values below it are commented out: Helm takes its defaults away, too."""
    rendered = subprocess.run(
        [helm, "template", CHART, "--kube-version=1.34", "--set", f"{name}=null"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert rendered.returncode == 0 or f"missing property '{name}'" in rendered.stderr


def test_no_value_may_be_emptied_that_has_a_default() -> None:
    """Helm takes the default away; `modelBooster:` would turn that controller on."""
    values, schema = (
        yaml.safe_load((CHART / f"values.{kind}").read_text()) for kind in ("yaml", "schema.json")
    )

    assert set(with_defaults(values)) - set(required(schema, schema["$defs"])) == set()


def with_defaults(values: Manifest, path: str = "") -> Iterator[str]:
    """Paths of the values that are neither empty nor a list or part of `resources`."""
    for name, value in values.items():
        if name == "resources":
            continue
        if isinstance(value, dict):
            yield from with_defaults(value, f"{path}/{name}")
        elif value != "" and not isinstance(value, list):
            yield f"{path}/{name}"


def required(schema: Manifest, shared: Manifest, path: str = "") -> Iterator[str]:
    """Paths of the values that have to be there."""
    for name, part in schema.get("properties", {}).items():
        if name in schema.get("required", ()):
            yield f"{path}/{name}"
        reference = part.get("$ref", "").rpartition("/")[2]
        yield from required(shared.get(reference, part), shared, f"{path}/{name}")


UNKNOWN_SCOPE = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
"""Kinds without a namespace to which kustomize gives one; the API server takes it away."""


def dashboard(manifests: list[Manifest]) -> object:
    """Take the dashboard out: blank lines at its end mean nothing."""
    return json.loads(
        find(manifests, "ConfigMap", "inferno-dashboard")["data"].pop("dashboard.json")
    )


def comparable(manifests: list[Manifest]) -> dict[tuple[str, str], Any]:
    """Objects by kind and name, without what means nothing: the order of named things.

    Helm puts namespace and release into the names of objects that are in no namespace.
    """
    text = json.dumps(manifests)
    for suffix in (f":{NAMESPACE}:{RELEASE}", f".{NAMESPACE}.{RELEASE}"):
        text = text.replace(suffix, "")
    plain = json.loads(text)
    for manifest in plain:
        if manifest["kind"] in UNKNOWN_SCOPE:
            manifest["metadata"].pop("namespace", None)
    return {(m["kind"], m["metadata"]["name"]): _without_order(m) for m in plain}


def _without_order(value: Any) -> Any:  # noqa: ANN401 - YAML of any shape
    if isinstance(value, dict):
        kept = {key: _without_order(item) for key, item in value.items() if key not in HELMS_OWN}
        return {key: item for key, item in kept.items() if item not in ({}, None)}
    if isinstance(value, list):
        items = [_without_order(item) for item in value]
        named = all(isinstance(item, dict) and "name" in item for item in items)
        return sorted(items, key=lambda item: str(item["name"])) if named else items
    return value
