"""See the whole loop at work, for a recorded day that passes in minutes: `make demo-loop`."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import le
from pathlib import Path

from tests.cluster.motion import Motion, Mover, moving
from tests.cluster.scene import Scene
from tests.controlplane import ControlPlane
from tests.controlplane.binaries import Binaries
from tests.controlplane.cluster import CONTROLLER_MANAGER, DEPLOYMENTS
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT
from tests.controlplane.waiting import wait_until
from tests.day.account import Bill, Outcome, compared, counted
from tests.day.course import HOURS, Day
from tests.day.objects import (
    FASTER,
    MEASURE_INTERVAL_S,
    POD_TIMES,
    RATE_S,
    SCRAPE_S,
    day_manifests,
    system_at_start,
)
from tests.day.show import Narrator, announcement, policies_table, servers_table, verdict
from tests.demo import Steps, exit_status, log_on_failure, start_operator, stop

NAMESPACE = "day"
DAY_S = 240.0
PROGRAMS = ("etcd", "kube-apiserver", "kubectl", CONTROLLER_MANAGER, "prometheus")
SERVING_TIMEOUT_S, DECIDED_TIMEOUT_S = 60.0, 30.0
LOOK_S = 1.0
"""Time between two looks at what was decided [s]."""

LATE_S = 30.0
"""How much later than planned an hour may end [s]."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the day; the exit status."""
    for number in ENDING_SIGNALS:
        signal.signal(number, _interrupt)
    day = Day(_parser().parse_args().seconds)
    print(f"{announcement(day.seconds)}\n", flush=True)
    return exit_status(lambda: run(day))


def _interrupt(*_: object) -> None:
    """End once: what follows is the way out, which a second Ctrl-C would only lengthen."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def run(day: Day) -> None:
    """Start everything, let the day pass, and tell what it came to."""
    step = Steps()
    step("Find the programs")
    binaries = Binaries(os.environ)
    programs = binaries.find_all(PROGRAMS)
    step("Start etcd, kube-apiserver and the controllers of Deployments")
    with ControlPlane(binaries) as control_plane:
        control_plane.start_controller_manager(DEPLOYMENTS)
        control_plane.install_crds(ROOT / "crds")
        control_plane.create_namespace(NAMESPACE)
        movers = day.movers()
        with running(control_plane, programs["prometheus"], movers, step) as (motion, operator):
            hour, start = day.seconds / HOURS, POD_TIMES.cold_start_s
            step(f"Let the day pass: an hour takes {hour:g} s, and a replica starts in {start:g} s")
            outcomes = pass_day(motion, operator, day).outcomes()
            step("Replay the load that the engines counted with other policies")
            show_outcome(outcomes, motion, movers, day)
            step("Stop the operator, Prometheus and the control plane")
            stop(operator)
    step("Done")


@contextmanager
def running(
    control_plane: ControlPlane, prometheus_program: Path, movers: list[Mover], step: Steps
) -> Iterator[tuple[Motion, OperatorProcess]]:
    """Run servers, engines, Prometheus and the operator."""
    scene = Scene(control_plane, NAMESPACE)
    step("Start Prometheus and the simulated engines")
    with moving(scene, prometheus_program, movers, scrape_s=SCRAPE_S, pods=POD_TIMES) as motion:
        scene.apply(*day_manifests(movers))
        served = partial(motion.all_have_served, 2 * RATE_S)
        wait_until(served, bool, "replicas that serve", SERVING_TIMEOUT_S)
        step("Start the operator, with the rights of its service account and no others")
        operator = start_operator(control_plane, motion.environment(MEASURE_INTERVAL_S))
        with log_on_failure(operator):
            operator.wait_until_ready()
            wait_until(motion.all_decided, bool, "a decision for each server", DECIDED_TIMEOUT_S)
            yield motion, operator


def pass_day(motion: Motion, operator: OperatorProcess, day: Day) -> Bill:
    """Let the loads move, and tell what happens; a line ends each hour."""
    narrator, hour = Narrator(motion, day), day.seconds / HOURS
    print(f"\n{narrator.heading()}", flush=True)
    motion.begin()
    bill = Bill(motion)
    for number in range(1, round(HOURS) + 1):
        end = number * hour
        while motion.elapsed < end:
            operator.check_running()
            pass_time(motion, min(motion.elapsed + LOOK_S, end))
            for line in narrator.decisions():
                print(line, flush=True)
        print(narrator.hour(end - hour, end), flush=True)
    print(flush=True)
    return bill


def pass_time(motion: Motion, until: float) -> None:
    """Wait until the loads have moved for so many seconds."""
    if motion.error is not None:
        raise motion.error
    wait_until(lambda: motion.elapsed, partial(le, until), "the time", LATE_S)


def show_outcome(outcomes: list[Outcome], motion: Motion, movers: list[Mover], day: Day) -> None:
    """Print what each server came to, and what other policies would have."""
    system = system_at_start(movers, day_manifests(movers))
    others = compared(system, counted(motion, day.seconds))
    run = replace(outcomes[-1], name="this run")
    print(f"\nAs it ran (costs in cents/hour)\n{servers_table(outcomes)}")
    print(
        "\nThe same requests, as the engines counted them, in the simulation of `inferno replay`."
        f" All\nwindows and lead times of these policies are {FASTER} times as short, as those of"
        f" the operator were.\n{policies_table([run, *others])}\n"
    )
    print(*verdict(run, others), sep="\n", end="\n\n", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.day",
        description="See the whole loop at work, for a recorded day that passes in minutes.",
        epilog="example: python -m tests.day --seconds 120",
    )
    parser.add_argument("--seconds", type=float, default=DAY_S, help="how long the day takes (240)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
