"""`inferno generate`: autoscalers that carry decisions out."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import Annotated

import typer

from inferno_operator.cli.console import Lenient, examples, warn
from inferno_operator.cli.options import autoscalers as options
from inferno_operator.cli.options.inputs import Paths

app = typer.Typer()


@app.command(
    epilog=examples(
        "inferno generate keda servers.yaml --namespace llm",
        "inferno generate keda --for kserve servers.yaml",
        "kubectl get servers -o yaml | inferno generate keda - | kubectl apply -f -",
    )
)
def generate(  # noqa: PLR0913 - an argument for each option
    autoscaler: options.Kind,
    paths: Paths,
    servers: Annotated[
        list[str],
        typer.Option(
            "--server",
            metavar="NAME",
            help="Only this Server; can be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: options.For = None,
    url: options.Url = options.SERVICE,
    token_secret: options.TokenSecret = options.SECRET,
    max_replicas: options.MaxReplicas = options.MOST,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAME", help="Namespace of Servers that name none.")
    ] = None,
    lenient: Lenient = False,
) -> None:
    """Generate KEDA ScaledObjects or HPAs.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import generated
    from inferno_operator.cli.offline.system import read_resources, refuse_unknown

    resources = read_resources(paths, warn if lenient else refuse_unknown)
    access = options.Access(url, token_secret, max_replicas)
    text, warnings = generated(autoscaler, resources, servers, access, namespace, owner)
    warn(warnings)
    typer.echo(text, nl=False)
