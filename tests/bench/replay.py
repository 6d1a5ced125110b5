"""Replays of fourteen days: processor time, as policies run one after the other."""

import resource
from pathlib import Path

import numpy as np

from inferno_operator.cli.offline.traces import read_trace
from inferno_optimizer.replay.fleet import build_fleet
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import POLICIES
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.replay.trace import Trace, assign_clients
from inferno_optimizer.wire.codec import decode_system
from tests.bench.library import SEED, Numbers, peak_mib
from tests.generate import fleet

ROOT = Path(__file__).parents[2]
STEP_S = 60.0
DAY_S = 86400.0


def replayed(*, policy: str, servers: int, accelerators: int, days: float) -> Numbers:
    """Replay a load that changes every ten minutes, with decisions each minute."""
    system = decode_system(fleet(servers, accelerators, SEED, demand=0.7))
    whole, _ = build_fleet(system)
    load = assign_clients(_load(days), whole.servers).every(STEP_S)
    before = _processor_seconds()
    replay(Scenario(whole, whole, load, LeadTime()), POLICIES[policy], whole.home)
    return {"seconds": _processor_seconds() - before, "mib": peak_mib()}


def _load(days: float) -> Trace:
    """The clients of a shipped trace, which begins again after its end."""
    trace = read_trace(str(ROOT / "samples/traces/servegen-m-large.csv"))
    rows = np.arange(round(days * DAY_S / trace.step_s)) % trace.steps
    columns = (trace.rate[rows], trace.input_tokens[rows], trace.output_tokens[rows])
    return Trace(trace.clients, trace.step_s, *columns)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
