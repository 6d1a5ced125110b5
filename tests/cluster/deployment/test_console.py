"""The console on a real API server: admitted without privileges, with options that exist."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane
from tests.deployment.pods import Pod
from tests.deployment.rendering import (
    NAMESPACE,
    Manifest,
    copy_with_components,
    find,
    kustomize,
)

CONSOLE = "inferno-console"
ORIGIN = "https://inferno.example.com"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture
def manifests(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> list[Manifest]:
    """What the component adds, for a namespace of the test; the chart renders the same."""
    overlay = copy_with_components(tmp_path, "stateless", "console")
    rendered = kustomize(control_plane.kubectl_program, overlay)
    own = [m for m in rendered if m["metadata"]["name"] == CONSOLE]
    moved: list[Manifest] = json.loads(json.dumps(own).replace(NAMESPACE, namespace))
    return moved


@pytest.fixture
def pod(manifests: list[Manifest]) -> Manifest:
    spec: Manifest = find(manifests, "Deployment", CONSOLE)["spec"]["template"]["spec"]
    return spec


def test_it_is_admitted_without_a_warning_where_none_has_privileges(
    control_plane: ControlPlane, namespace: str, manifests: list[Manifest]
) -> None:
    control_plane.kubectl("label", "namespace", namespace, RESTRICTED)
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    options = ("--validate=strict", "-f", "-")

    applied = control_plane.kubectl("apply", "--server-side", *options, input=json.dumps(listed))
    template = Pod(find(manifests, "Deployment", CONSOLE), {}).template()
    started = control_plane.kubectl(
        *("create", "--dry-run=server", *options),
        input=json.dumps({"apiVersion": "v1", "kind": "Pod", **template}),
    )

    assert {m["kind"] for m in manifests} == {
        *("ServiceAccount", "Deployment", "Service", "NetworkPolicy")
    }
    assert (applied.stderr, started.stderr) == ("", "")


def test_its_options_are_those_of_the_command_and_its_files_are_mounted(pod: Manifest) -> None:
    (container,) = pod["containers"]
    arguments = [argument.replace("$(ORIGIN)", ORIGIN) for argument in container["args"]]
    program = [sys.executable, "-m", "inferno_operator.cli.kubectl.main", *arguments]

    refused = subprocess.run(program, capture_output=True, text=True, check=False)

    assert container["command"] == ["kubectl-inferno"]
    files = [f"/var/run/secrets/inferno/tls/tls.{name}" for name in ("crt", "key")]
    missing = f"--certificate {files[0]}, --private-key {files[1]}: No such file or directory"
    assert missing in refused.stderr
    folders = {mount["mountPath"] for mount in container["volumeMounts"]}
    paths = [Path(a.partition("=")[2]) for a in container["args"] if "=/" in a]
    assert len(paths) == 3
    assert {str(path.parent) for path in paths} <= folders
