"""What people may do, by the roles that the manifests give them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from inferno_operator.resources import GROUP
from inferno_operator.resources.objects import Key
from tests.cluster.scene import Scene
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import wait_until
from tests.deployment.rendering import OVERLAYS, kustomize
from tests.deployment.run import Cluster
from tests.plugin import Plugin
from tests.unit.operator.controllers.planning.test_proposal import made

TEAM = "team"
ROLES = ("view", "edit", "admin", "inferno-optimize", "inferno-approve")
READING = [
    f"{verb} {kind}"
    for verb in ("get", "list", "watch")
    for kind in ("accelerators", "capacities", "models", "optimizers", "servers", "serviceclasses")
]
READING_PLANS = [f"{verb} plans" for verb in ("get", "list", "watch")]
APPROVING = ["get plans/status", "update plans/status", "patch plans/status"]
DELETING_PLANS = ["delete plans"]
ASKING = ["patch optimizers"]
WRITING = ["create models", "update capacities", "patch servers", "delete optimizers"]
NOBODYS = ["patch servers/status", "patch optimizers/status", "create plans", "patch plans"]


@pytest.fixture(scope="module")
def people(deployment_cluster: Cluster) -> Iterator[ControlPlane]:
    """A namespace with a sample, and for each role somebody who has it there."""
    control_plane = deployment_cluster.control_plane
    definitions_and_rights = [
        manifest
        for manifest in kustomize(control_plane.kubectl_program, OVERLAYS / "stateless")
        if manifest["kind"] in ("ClusterRole", "CustomResourceDefinition")
    ]
    deployment_cluster.apply(definitions_and_rights)
    control_plane.create_namespace(TEAM)
    for role in ROLES:
        control_plane.kubectl("create", "serviceaccount", role, "--namespace", TEAM)
        options = (f"--clusterrole={role}", f"--serviceaccount={TEAM}:{role}")
        control_plane.kubectl("create", "rolebinding", role, *options, "--namespace", TEAM)
    Scene(control_plane, TEAM).apply_sample("small")
    yield control_plane
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    deployment_cluster.delete([namespace, *definitions_and_rights])


@pytest.mark.parametrize(
    ("role", "allowed", "refused"),
    [
        ("view", READING + READING_PLANS, ASKING + WRITING + NOBODYS + APPROVING),
        ("edit", READING + READING_PLANS + ASKING + WRITING + DELETING_PLANS, NOBODYS + APPROVING),
        ("admin", READING + READING_PLANS + ASKING + WRITING + DELETING_PLANS, NOBODYS + APPROVING),
        ("inferno-optimize", READING + READING_PLANS + ASKING, WRITING + NOBODYS + APPROVING),
        ("inferno-approve", READING_PLANS + APPROVING, READING + ASKING + WRITING + NOBODYS),
    ],
)
def test_roles_allow_what_they_are_for(
    role: str, allowed: list[str], refused: list[str], people: ControlPlane
) -> None:
    # `view` and `edit` are the cluster's own: a controller adds our rights to them.
    wait_until(lambda: may(people, role, "watch plans"), bool, "the rights to read")

    answers = {asked: may(people, role, asked) for asked in allowed + refused}

    assert answers == dict.fromkeys(allowed, True) | dict.fromkeys(refused, False)


def test_who_may_ask_needs_no_more_for_the_plugin(people: ControlPlane, tmp_path: Path) -> None:
    plugin = plugin_of(people, "inferno-optimize", tmp_path)

    for command in ("plan", "top", "explain premium-granite-13b", "optimize"):
        assert plugin.output(*command.split())

    assert people.get("optimizer", "inferno", TEAM)["spec"]["optimize"]


def test_who_may_only_read_is_told_so(people: ControlPlane, tmp_path: Path) -> None:
    plugin = plugin_of(people, "view", tmp_path)
    wait_until(lambda: may(people, "view", "list servers"), bool, "the rights to read")

    refused = plugin.run("optimize")

    assert plugin.output("plan")
    assert refused.returncode != 0
    assert "cannot patch resource" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_who_may_not_approve_is_told_which_role_is_missing(
    people: ControlPlane, tmp_path: Path
) -> None:
    plan = made(Key(TEAM, "inferno-9"))
    Scene(people, TEAM).apply(plan)

    refused = plugin_of(people, "admin", tmp_path).run("approve", "inferno-9")
    approved = plugin_of(people, "inferno-approve", tmp_path).output("approve", "inferno-9")
    answer = people.get("plan.inferno.platform.ai", "inferno-9", TEAM)["status"]["approval"]

    assert refused.returncode == 1
    assert "you need the ClusterRole inferno-approve in namespace 'team'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "Plan inferno-9: approved; 1 Server changes" in approved
    assert answer == {
        "state": "Approved",
        "digest": plan["spec"]["digest"],
        "by": f"system:serviceaccount:{TEAM}:inferno-approve",
    }


def may(control_plane: ControlPlane, role: str, asked: str) -> bool:
    """What the API server says of who has a role."""
    verb, resource = asked.split()
    kind, _, part = resource.partition("/")
    attributes = {"group": GROUP, "resource": kind, "subresource": part, "verb": verb}
    user = f"system:serviceaccount:{TEAM}:{role}"
    return control_plane.api.may(user, {**attributes, "namespace": TEAM})


def plugin_of(control_plane: ControlPlane, role: str, folder: Path) -> Plugin:
    plugin = Plugin(control_plane, TEAM, folder)
    config = yaml.safe_load(control_plane.service_account_kubeconfig(TEAM, role).read_text())
    config["contexts"][0]["context"]["namespace"] = TEAM
    plugin.kubeconfig.write_text(yaml.safe_dump(config))
    return plugin
