"""A ModelBooster while much happens at once, and operators end at any moment."""

import threading
from collections.abc import Iterator
from random import Random

import pytest

from inferno_operator.resources.dialects import DIALECTS, Dialect
from tests.cluster.actuated import Actuated
from tests.cluster.fleet import Fleet, running_fleet
from tests.cluster.scene import Scene
from tests.conftest import ROOT, StartOperator
from tests.controlplane import ControlPlane
from tests.tiers import extended

pytestmark = pytest.mark.usefixtures("crds_installed", "definitions")


@pytest.fixture(scope="module")
def definitions(control_plane: ControlPlane) -> None:
    """Both dialects are served."""
    for dialect in DIALECTS:
        control_plane.install_crds(ROOT / "crds" / dialect)


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """That of Kthena, or the one of the test."""
    return DIALECTS[getattr(request, "param", "kthena")]


in_each_dialect = pytest.mark.parametrize(
    "dialect", ["kthena", *extended("matrixinfer")], indirect=True
)


@pytest.fixture
def fleet(control_plane: ControlPlane, namespace: str, dialect: Dialect) -> Iterator[Fleet]:
    """What runs boosters in the test's namespace."""
    with running_fleet(control_plane.kubeconfig, namespace, dialect) as fleet:
        yield fleet


class Life:
    """A booster, its replicas, and an operator that is killed again and again."""

    def __init__(self, actuated: Actuated, fleet: Fleet, start: StartOperator) -> None:
        self.actuated, self.fleet = actuated, fleet
        self._start, self._operator = start, start()
        self._chance = Random(1)  # noqa: S311 - the same moments each run
        self._clock = threading.Event()
        self._since = 0

    def begin(self) -> None:
        """Look at the replicas from now on."""
        self._since = len(self.fleet.history)

    def lowest(self) -> int:
        """Fewest replicas that were available at once since it began."""
        return min(sum(state.values()) for state in self.fleet.history[self._since - 1 :])

    def kill(self, times: int = 3) -> None:
        """Kill the operator with -9 at some moments; another one begins each time."""
        for _ in range(times):
            self._clock.wait(self._chance.uniform(0.05, 0.6))
            self._operator.kill()
            self._operator = self._start()

    def settle(self, text: str) -> int:
        """Wait until the decision runs; return the fewest replicas on the way."""
        self.actuated.wait_for("Actuated", text)
        return self.lowest()


@pytest.fixture
def life(scene: Scene, fleet: Fleet, operator: StartOperator, dialect: Dialect) -> Life:
    """Two replicas on A100."""
    actuated = Actuated(scene, dialect)
    actuated.boost()
    life = Life(actuated, fleet, operator)
    actuated.apply(wanted=2)
    actuated.wait_for("Actuated", "2 x A100")
    return life


@pytest.mark.extended
@in_each_dialect
def test_no_replica_that_is_needed_goes_whenever_operators_are_killed(life: Life) -> None:
    actuated = life.actuated
    life.begin()
    actuated.load(4)
    life.kill()
    assert life.settle("4 x A100") == 2

    life.begin()
    actuated.have_only_h100()
    actuated.ask()
    life.kill()
    assert life.settle("4 x H100") == 4

    life.begin()
    actuated.load(1)
    actuated.load(3)
    life.kill(1)
    assert life.settle("3 x H100") >= 1


@pytest.mark.extended
def test_with_one_card_less_than_are_used_only_what_runs_on_it_goes(life: Life) -> None:
    actuated = life.actuated
    actuated.load(4)
    life.settle("4 x A100")
    life.begin()
    counts = [{"type": "A100", "count": 3}, {"type": "H100", "count": 0}]
    actuated.patch("capacity", "cards", {"spec": {"count": counts}})
    actuated.ask()
    life.kill(1)
    assert life.settle("3 x A100") == 3
    actuated.wait_until_runs("A100", 3)


@pytest.mark.extended
@in_each_dialect
def test_a_booster_that_is_deleted_and_created_again_gets_its_replicas_back(life: Life) -> None:
    actuated, plane = life.actuated, life.actuated.scene.control_plane
    place = str(actuated.dialect.booster)
    plane.kubectl("delete", place, "m", "--namespace", actuated.scene.namespace)
    actuated.wait_for("NoModelBooster")
    assert actuated.replicas() == {"m-a100": 2, "m-h100": 0}

    actuated.boost()
    life.kill(1)
    life.settle("2 x A100")
    actuated.wait_for_replicas(a100=2, h100=0)
