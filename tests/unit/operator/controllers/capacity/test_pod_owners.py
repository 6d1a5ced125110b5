"""Which pods are those of a Server with a ModelBooster."""

from inferno_operator.controllers.capacity.inventory import PodOwner
from inferno_operator.controllers.capacity.objects import find_owners
from inferno_operator.resources import Server, parse
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Key
from inferno_operator.resources.pods import PodIndex
from tests.unit.operator import objects

LABEL = "modelserving.volcano.sh/"
ON_L40S = {"accelerator": "L40S"}


def test_the_pods_of_each_role_are_on_its_accelerator() -> None:
    backends = [
        {"name": "pd", "accelerator": "L40S", "role": "Prefill"},
        {"name": "pd", "accelerator": "H100", "role": "Decode"},
        {"name": "all", "accelerator": "H100"},
    ]
    server = parse(objects.server("S", spec={"modelBooster": {"name": "m", "backends": backends}}))
    assert isinstance(server, Server)
    of = {"prefill": "m-pd", "decode": "m-pd", "leader": "m-all", "other": "x-pd"}
    pods = [
        {
            "metadata": {
                "name": role,
                "namespace": "ns",
                "labels": {f"{LABEL}name": serving, f"{LABEL}role": role},
            }
        }
        for role, serving in of.items()
    ]

    owners = find_owners([(Key("ns", "s"), server)], {}, {"ns": PodIndex(pods)})

    assert owners == {
        Key("ns", "prefill"): PodOwner("ns", "S", "L40S"),
        Key("ns", "decode"): PodOwner("ns", "S", "H100"),
        Key("ns", "leader"): PodOwner("ns", "S", "H100"),
    }


def test_what_a_booster_left_is_of_the_server_that_names_the_booster_now() -> None:
    serving = KTHENA.serving
    left = {"apiVersion": serving.api_version, "kind": serving.kind, "name": "m-a"}
    spec = {"workloads": [{"accelerator": "H100", "name": "d"}]}
    before = {**objects.server("Old", spec=spec), "status": {"workloads": [{**left, **ON_L40S}]}}
    booster = {"name": "m", "backends": [{"name": "a", **ON_L40S}]}
    old, new = parse(before), parse(objects.server("New", spec={"modelBooster": booster}))
    assert isinstance(old, Server)
    assert isinstance(new, Server)
    labels = {f"{LABEL}name": "m-a"}
    pods = [{"metadata": {"name": "pod", "namespace": "ns", "labels": labels}}]
    selectors = {("ns", old.left_workloads[0]): f"{LABEL}name=m-a"}
    servers = [(Key("ns", "old"), old), (Key("ns", "new"), new)]

    owners = find_owners(servers, selectors, {"ns": PodIndex(pods)})

    assert owners == {Key("ns", "pod"): PodOwner("ns", "New", "L40S")}
