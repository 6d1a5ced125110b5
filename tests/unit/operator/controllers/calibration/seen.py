"""Windows of replicas whose parameters a person knows."""

from dataclasses import replace
from datetime import UTC, datetime

from inferno_operator.controllers.calibration.windows import Pair
from inferno_optimizer.calibration.windows import Window

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
PAIR = Pair("default", "M", "A")
ALPHA, BETA, GAMMA, DELTA = 8.0, 0.2, 20.0, 0.0005
INPUTS, OUTPUTS = 500.0, 201.0


def window(number: int, batch: float, slower: float = 1.0) -> Window:
    """A window so many minutes before now, exactly as the parameters have it."""
    prefill = slower * (GAMMA + DELTA * INPUTS * batch)
    others = slower * (GAMMA + DELTA * INPUTS * (batch + 1))
    waits = (batch - 1) * others / (OUTPUTS - 1)
    return Window(
        end=NOW.timestamp() - 60 * number,
        itl_ms=slower * (ALPHA + BETA * batch) + waits,
        intervals=5000,
        batch=batch,
        prefill_ms=prefill,
        prefills=50,
        input_tokens=INPUTS,
        output_tokens=OUTPUTS,
    )


def spread(count: int = 60) -> list[Window]:
    """Windows at batches of 2 to 31, the newest last."""
    return [window(count - number, 2 + number * 7 % 30) for number in range(count)]


def steady(count: int = 60) -> list[Window]:
    """Windows at one batch."""
    return [window(count - number, 16) for number in range(count)]


def slower_lately(count: int = 12) -> list[Window]:
    """The same, of which the newest are of an engine that is 30 % slower."""
    recent = [window(count - number, 2 + number * 7 % 30, 1.3) for number in range(count)]
    return [*(replace(w, end=w.end - 60 * count) for w in spread()), *recent]
