"""Which pods are those of a Server with a ModelBooster."""

from inferno_operator.controllers.capacity.inventory import PodOwner
from inferno_operator.controllers.capacity.world import find_owners
from inferno_operator.resources import Server, parse
from inferno_operator.resources.objects import Key
from inferno_operator.resources.pods import PodIndex
from tests.unit.operator import objects

LABEL = "modelserving.volcano.sh/"


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
