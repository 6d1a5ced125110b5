"""What the demo makes of the Servers that it reads."""

from typing import Any

import pytest

from tests.controlplane import ControlPlaneError
from tests.demo import require_decisions, saving

NOTHING = {"accelerator": "", "numReplicas": 0}


def server(
    name: str, current: float, desired: float | None, reason: str | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "currentAlloc": {"accelerator": "A100", "numReplicas": 1, "cost": current},
        "desiredAlloc": NOTHING
        if desired is None
        else {"accelerator": "G2", "numReplicas": 1, "cost": desired},
    }
    conditions = [{"type": "Allocated", "reason": reason, "message": "why"}] if reason else []
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


def test_the_total_tells_what_is_saved_and_how_many_are_served() -> None:
    servers = [server("a", 100, 60), server("b", 100, 65), server("c", 50, None, "NoCapacity")]

    assert (
        saving(servers) == "Total: 250.00 -> 125.00, 125.00 less (-50%); 2 of 3 have an allocation"
    )


def test_only_a_server_with_neither_an_allocation_nor_a_reason_why_not_is_named() -> None:
    decided = [server("a", 1, 2), server("b", 1, None, "NoCapacity")]
    require_decisions(decided)

    with pytest.raises(ControlPlaneError) as error:
        require_decisions([*decided, server("forgotten", 1, None)])

    assert str(error.value) == "no decision for forgotten"
