"""`inferno catalogue`: figures that others have published, and estimates where there are none."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import Annotated

import typer

from inferno_operator.cli.console import Format, Output, examples, show

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


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback(epilog=examples("inferno catalogue show llama_13b -o yaml"))
def show_published() -> None:
    """Show published figures of models, and estimate others.

    Use them until you have calibrated your own.
    """


@app.command("list", epilog=examples("inferno catalogue list"))
def list_models(output: Output = Format.TABLE) -> None:
    """List the models, their accelerators and sources."""
    from inferno_operator.cli.offline.catalogue import read_catalogue
    from inferno_operator.cli.tables.catalogue import describe_catalogue

    catalogue = read_catalogue()
    show(output, catalogue.to_json, lambda: describe_catalogue(catalogue))


@app.command("show", epilog=examples("inferno catalogue show llama_13b -o yaml"))
def show_model(
    model: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model.")],
    output: Output = Format.TABLE,
) -> None:
    """Show the figures of a model with their sources.

    As YAML or JSON, print the manifest of a Model.
    """
    from inferno_operator.cli.offline.catalogue import model_manifest, read_catalogue
    from inferno_operator.cli.tables.catalogue import describe_figures

    catalogue = read_catalogue()
    figures = catalogue.of(model)
    show(
        output, lambda: model_manifest(model, figures), lambda: describe_figures(catalogue, figures)
    )


@app.command("accelerators", epilog=examples("inferno catalogue accelerators"))
def list_accelerators(output: Output = Format.TABLE) -> None:
    """List the cards of which there are estimates.

    Their figures are those that their vendors publish.
    """
    from inferno_operator.cli.offline.catalogue import read_hardware
    from inferno_operator.cli.tables.catalogue import describe_hardware

    hardware = read_hardware()
    show(output, hardware.to_json, lambda: describe_hardware(hardware))


@app.command("models", epilog=examples("inferno catalogue models"))
def list_known_models(output: Output = Format.TABLE) -> None:
    """List the models whose config.json is known.

    `inferno catalogue estimate --model` takes their names.
    """
    from inferno_operator.cli.offline.catalogue import read_models
    from inferno_operator.cli.tables.catalogue import describe_models

    models = read_models()
    show(output, models.to_json, lambda: describe_models(models))


@app.command(
    "estimate",
    epilog=examples(
        "inferno catalogue estimate --model Llama-3.1-70B --accelerator H200 "
        "--accelerator-count 2 --dtype fp8",
        "inferno catalogue estimate --model-config config.json --accelerator MI300X -o table",
        "inferno catalogue estimate --model Qwen3-32B --accelerator H100 --accelerator L40S "
        "--accelerator-count 1 --accelerator-count 4",
    ),
)
def estimate_model(  # noqa: PLR0913 - an argument for each option
    *,
    accelerator: CardNames,
    model: ModelName = "",
    model_config: ModelConfig = "",
    accelerator_count: CardCounts = ONE_CARD,
    dtype: WeightPrecision = "",
    kv_dtype: CachePrecision = "bf16",
    input_tokens: InputTokens = 1024,
    output_tokens: OutputTokens = 256,
    output: Output = Format.YAML,
) -> None:
    """Estimate the performance of a model, as a Model to paste.

    A roofline: a step takes as long as the card needs to read weights and cache, or to multiply,
    and what engines take besides, which was fitted to published measurements. It says what it was
    off by for models that it was not fitted to. Needs no cluster and no GPU.
    """
    from inferno_operator.cli.estimate import (
        EstimateRequest,
        card_counts,
        estimate,
        list_warnings,
        model_manifest,
    )
    from inferno_operator.cli.offline.catalogue import read_hardware, read_models
    from inferno_operator.cli.offline.model_config import read_config
    from inferno_operator.cli.tables.catalogue import describe_estimates
    from inferno_optimizer.errors import InputError

    if not model and not model_config:
        raise InputError("name a model with --model, or its config.json with --model-config")
    hardware = read_hardware()
    counts = card_counts(accelerator, accelerator_count)
    cards = [hardware.card(name) for name in accelerator]
    config = read_config(model_config) if model_config else read_models().model(model).config
    origin = model_config or model
    name = model or str(config.get("_name_or_path") or config.get("model_type") or "model")
    form = (dtype, kv_dtype, input_tokens, output_tokens)
    estimates = [
        estimate(EstimateRequest(name, config, origin, count, *form), card, hardware)
        for card, count in zip(cards, counts, strict=True)
    ]
    if output is Format.YAML:
        for line in list_warnings(estimates):
            typer.echo(f"# {line}")
    show(output, lambda: model_manifest(estimates), lambda: describe_estimates(estimates))
