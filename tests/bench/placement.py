"""Time of the check whether all replicas of a plan fit on nodes."""

from inferno_optimizer.placement import Demand, Node, unplaced
from tests.bench.library import Numbers, median_seconds

SIZES = (1, 2, 4, 8)
TYPES = 8


def placement(*, servers: int, nodes: int) -> Numbers:
    """Servers with a replica each on nodes of eight cards, half of which run already."""
    keys = [(f"server-{number}", "A") for number in range(servers)]
    demands = [
        Demand(key, f"T{place % TYPES}", SIZES[place // TYPES % len(SIZES)], 1)
        for place, key in enumerate(keys)
    ]
    running: list[dict[tuple[str, str], int]] = [{} for _ in range(nodes)]
    for place, demand in enumerate(demands[::2]):
        running[2 * place % nodes][demand.key] = demand.cards
    machines = [Node(f"T{place % TYPES}", 8, held) for place, held in enumerate(running)]

    def whole() -> None:
        unplaced(machines, demands)

    return {"seconds": median_seconds(whole)}
