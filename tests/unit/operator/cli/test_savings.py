"""What `kubectl inferno savings` prints of the accounts that Servers have."""

import json

import pytest

from inferno_operator.cli.savings import accounts, savings_document
from inferno_operator.cli.tables.savings import savings_parts
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError
from tests.unit.operator.objects import observed, server


def account(name: str, paid: float) -> Observation:
    policies = [
        {"policy": "hpa", "cost": 2 * paid, "keptRequests": 90},
        {"policy": "keda-slo", "cost": paid / 2, "keptRequests": 50},
    ]
    status = {
        "savings": {
            "since": "2026-11-01T00:00:00Z",
            "time": "2026-11-02T00:00:00Z",
            "countedSeconds": 86400,
            "requests": 100,
            "keptRequests": 99,
            "paid": paid,
            "planned": paid,
            "accelerator": "A",
            "peakReplicas": 4,
            "staticPeak": 4 * paid,
            "policies": policies,
        }
    }
    return observed({**server(name), "status": status})


def printed(*observations: Observation) -> list[str]:
    parts = savings_parts(accounts(observations, "default"))
    return "\n".join(map(str, parts)).splitlines()


def test_servers_and_their_sum_stand_beside_other_policies() -> None:
    lines = [line.split() for line in printed(account("B", 20), account("A", 10))]

    assert lines[1] == ["A", "A", "24.00", "10.00", "10.00", "40.00", "20.00", "5.00"]
    assert lines[3] == ["all", "24.00", "30.00", "30.00", "120.00", "60.00", "15.00"]
    assert lines[8] == ["all", "200", "99.00%", "90.00%", "50.00%"]


def test_what_was_saved_is_told_for_each_policy() -> None:
    assert printed(account("A", 10))[-3:] == [
        "30.00 cents (75%) less than static-peak, since 2026-11-01 00:00 UTC",
        "10.00 cents (50%) less than hpa, since 2026-11-01 00:00 UTC",
        "5.00 cents (100%) more than keda-slo, since 2026-11-01 00:00 UTC",
    ]


def test_the_document_has_the_same_numbers() -> None:
    document = json.loads(json.dumps(savings_document(accounts([account("A", 10)], "default"))))

    (row,) = document["servers"]
    assert row["cents"]["hpa"] == 20
    assert row["keptRequests"] == {"paid": 99, "hpa": 90, "keda-slo": 50}


def test_a_namespace_without_accounts_is_refused() -> None:
    with pytest.raises(InputError, match="namespace default: no savings data yet"):
        accounts([observed(server())], "default")
