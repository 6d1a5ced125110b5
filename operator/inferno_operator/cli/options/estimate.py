"""The options of `inferno catalogue estimate`."""

from typing import Annotated

import typer

CardNames = Annotated[
    list[str],
    typer.Option(
        metavar="NAME",
        help="The card; `inferno catalogue accelerators` has all. Repeat it for several.",
    ),
]
ModelName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="A model of `inferno catalogue models`; with --model-config, the name to give it.",
        show_default=False,
    ),
]
ModelConfig = Annotated[
    str,
    typer.Option(
        metavar="FILE", help="The config.json of a model on Hugging Face.", show_default=False
    ),
]
CardCounts = Annotated[
    list[int],
    typer.Option(
        metavar="N",
        min=1,
        help="Cards of a replica, which share each layer; repeat it for each accelerator where"
        " they differ.",
        show_default="1",
    ),
]
ONE_CARD = [1]
WeightPrecision = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Precision of the weights: bf16, fp8, int4 or mxfp4. Without it, as published.",
        show_default=False,
    ),
]
CachePrecision = Annotated[
    str, typer.Option(metavar="NAME", help="Precision of the cache: bf16 or fp8.")
]
InputTokens = Annotated[
    int, typer.Option(metavar="N", min=1, help="Mean input tokens of requests.")
]
OutputTokens = Annotated[int, typer.Option(metavar="N", min=1, help="Mean output tokens.")]
