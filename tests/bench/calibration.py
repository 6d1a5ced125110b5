"""Time that a calibration of many models takes."""

import numpy as np

from inferno_optimizer.calibration.calibrate import Evidence, calibrate
from inferno_optimizer.calibration.windows import Window
from inferno_optimizer.system import PrefillDecodeParameters
from tests.bench.library import SEED, Numbers, median_seconds, peak_mib

TRUTH = PrefillDecodeParameters(8.0, 0.1, 20.0, 0.0008)
MINUTE_S = 60.0
OUTPUT_TOKENS = 200.0


def calibration(*, pairs: int, windows: int) -> Numbers:
    """Windows of models on accelerators, with 5 % noise and 5 % outliers, to their parameters."""
    generator = np.random.default_rng(SEED)
    evidence = [Evidence(_windows(generator, windows), TRUTH, 64.0) for _ in range(pairs)]

    def whole() -> None:
        calibrate(evidence, windows * MINUTE_S)

    seconds = median_seconds(whole)
    return {"seconds": seconds, "mib": peak_mib()}


def _windows(generator: np.random.Generator, count: int) -> list[Window]:
    batch = generator.uniform(2.0, 40.0, count)
    inputs = generator.uniform(300.0, 700.0, count)
    prefill = TRUTH.gamma + TRUTH.delta * inputs * batch
    others = TRUTH.gamma + TRUTH.delta * inputs * (batch + 1.0)
    itl = TRUTH.alpha + TRUTH.beta * batch + (batch - 1.0) * others / (OUTPUT_TOKENS - 1.0)
    noise = generator.normal(1.0, 0.05, (2, count))
    noise *= np.where(generator.random((2, count)) < 0.05, 3.0, 1.0)
    columns = zip(
        *np.stack([itl * noise[0], batch, prefill * noise[1], inputs]).tolist(), strict=True
    )
    return [
        Window(
            end=MINUTE_S * number,
            itl_ms=measured_itl,
            intervals=5000.0,
            batch=size,
            prefill_ms=measured_prefill,
            prefills=100.0,
            input_tokens=tokens,
            output_tokens=OUTPUT_TOKENS,
        )
        for number, (measured_itl, size, measured_prefill, tokens) in enumerate(columns)
    ]
