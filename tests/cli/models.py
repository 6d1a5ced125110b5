"""The Model of the published episode, with other times than in its sample."""

import json
from pathlib import Path


def performing(file: Path, slower: float, accelerator: str = "2xH100") -> Path:
    """Write it to a file, with times that are longer by a factor."""
    decode, prefill = ({"alpha": 14 * slower, "beta": 0.45 * slower}, {"gamma": 290 * slower})
    data = {
        "acc": accelerator,
        "accCount": 1,
        "decodeParms": decode,
        "prefillParms": {**prefill, "delta": 0.0021 * slower},
        "maxBatchSize": 64,
        "atTokens": 1000,
    }
    model = {
        "apiVersion": "inferno.platform.ai/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "qwen3-32b"},
        "spec": {"name": "qwen3-32b", "data": [data]},
    }
    file.write_text(json.dumps(model))
    return file
