"""`kubectl inferno generate`: autoscalers that carry decisions out."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import examples, warn
from inferno_operator.cli.kubectl.places import read, somewhere
from inferno_operator.cli.options import autoscalers as options

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

app = typer.Typer()


@app.command(
    epilog=examples(
        "kubectl inferno generate keda | kubectl apply -f -",
        "kubectl inferno generate hpa premium-granite-13b -n llm",
    )
)
@somewhere
def generate(
    place: "KubectlOptions",
    autoscaler: options.Kind,
    servers: Annotated[
        list[str],
        typer.Argument(
            metavar="SERVER",
            help="Their names; by default all Servers with workloads.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    *,
    owner: options.For = None,
    url: options.Url = options.SERVICE,
    token_secret: options.TokenSecret = options.SECRET,
    max_replicas: options.MaxReplicas = options.MOST,
) -> None:
    """Generate KEDA ScaledObjects or HPAs.

    With keda, a ScaledObject for each workload, which asks the operator; with hpa, a
    HorizontalPodAutoscaler, which reads the metric inferno_desired_replicas.
    """
    from inferno_operator.cli.autoscalers import generated
    from inferno_operator.resources.observation import readable

    namespace, observations = read(place)
    access = options.Access(url, token_secret, max_replicas)
    text, warnings = generated(
        autoscaler, readable(observations), servers, access, namespace, owner
    )
    warn(warnings)
    typer.echo(text, nl=False)
