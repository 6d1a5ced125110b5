"""Options of the commands that measure an engine and find the parameters of its model."""

from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[str, typer.Option(metavar="NAME", help="The name of the model.")]
AcceleratorName = Annotated[str, typer.Option(metavar="NAME", help="The name of the accelerator.")]
AccCount = Annotated[
    int, typer.Option(metavar="N", min=1, help="Accelerators that one replica has.")
]
TokenBudget = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Most tokens that a step of the engine computes (vLLM: max-num-batched-tokens).",
    ),
]
RunFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="CSV with a run on each line, or the JSON that `vllm bench serve`, guidellm or "
        "genai-perf saves.",
        show_default=False,
    ),
]
MaxBatchSize = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Largest batch of a replica; 0: the largest that was seen."
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the lines and what was measured (SVG)."),
]
Labels = Annotated[
    str,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Labels that all series of the vLLM replicas have: read Prometheus, not files.",
    ),
]
PastHours = Annotated[
    float, typer.Option(metavar="H", min=0.5, max=48, help="How far back to read Prometheus.")
]
EngineUrl = Annotated[
    str, typer.Argument(metavar="URL", help="Where the engine is, such as http://localhost:8000.")
]
Shapes = Annotated[
    list[str],
    typer.Option(
        "--shape",
        metavar="INPUT/OUTPUT",
        help="Mean tokens of prompts and answers, the most usual ones first. Can be repeated.",
    ),
]
MaxConcurrency = Annotated[
    int,
    typer.Option(
        metavar="N", min=4, max=4096, help="Most clients; not more than the largest batch."
    ),
]
Minutes = Annotated[float, typer.Option(metavar="M", min=0.1, max=15, help="How long to measure.")]
ServedModel = Annotated[
    str,
    typer.Option(metavar="NAME", help="The model to ask for; by default the first one served."),
]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the API key.")]
Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=1, help="Longest time to the next token.")
]
Csv = Annotated[Path, typer.Option(metavar="FILE", help="The file to write; it must not exist.")]
Yes = Annotated[bool, typer.Option("--yes", help="Load an engine that is not on this machine.")]
