"""What lasts is told by seconds that pass, whatever somebody does with the clock."""

from datetime import datetime, timedelta

import pytest

from inferno_operator.runtime.steady_clock import SteadyClock
from tests.unit.operator.objects import NOW

HOUR_S = 3600.0


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.ahead_s = 0.0

    def elapsed(self) -> float:
        return self.elapsed_s

    def wall(self) -> datetime:
        return NOW + timedelta(seconds=self.elapsed_s + self.ahead_s)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.5, -0.5, 0.0])
def test_durations_are_right_within_a_tenth_across_a_step_of_the_clock(step_s: float) -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    machine.elapsed_s = 100.0
    began = clock()
    machine.ahead_s = step_s
    for _ in range(30):
        machine.elapsed_s += 10.0
        lasted = (clock() - began).total_seconds()

        assert lasted == pytest.approx(machine.elapsed_s - 100.0, rel=0.101)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_ten_times_the_step_later_it_is_the_time_of_day_again(step_s: float) -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    machine.ahead_s = step_s
    machine.elapsed_s += 10 * HOUR_S

    assert clock() == machine.wall()


def test_it_never_goes_back() -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    times = []
    for ahead_s in (0.0, 5.0, -HOUR_S, HOUR_S, 0.0):
        machine.ahead_s = ahead_s
        machine.elapsed_s += 1.0
        times += [clock(), clock()]

    assert times == sorted(times)
