"""`inferno generate` and `migrate`: objects for other autoscalers, and from them."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import Annotated

import typer

from inferno_operator.cli.console import Lenient, examples, warn
from inferno_operator.cli.options import autoscalers as options
from inferno_operator.cli.options.inputs import Paths
from inferno_optimizer.errors import InputError

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


migrations = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@migrations.callback(epilog=examples("inferno migrate wva samples/wva"))
def migrate() -> None:
    """Convert other autoscalers' objects to Inferno resources."""


@migrations.command(
    "wva",
    epilog=examples(
        "inferno migrate wva samples/wva",
        "kubectl get variantautoscalings,hpa,scaledobjects,configmaps,deployments -A "
        "-o yaml | inferno migrate wva - > inferno.yaml",
    ),
)
def migrate_wva(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="VariantAutoscalings, or HPAs and ScaledObjects with annotations; the ConfigMaps "
            "of WVA; the Deployments. Files, folders; - for stdin.",
            show_default=False,
        ),
    ],
    accelerators: Annotated[
        list[str],
        typer.Option(
            "--accelerator",
            metavar="[WORKLOAD=]NAME",
            help="The accelerator of a workload, or of all whose pods name none. Can be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
) -> None:
    """Convert objects of llm-d's WVA to Inferno resources.

    Reads what v0.5 to v0.9 are configured with, and prints Accelerators, Models, ServiceClasses,
    Servers, a Capacity and an Optimizer in mode Recommend, which scale nothing yet. What has no
    counterpart is told in one line each. Needs no cluster and changes nothing.
    """
    import yaml

    from inferno_operator.cli.migration import migrate
    from inferno_operator.cli.offline.manifests import read_documents

    manifests, notes = migrate(read_documents(paths), accelerators)
    warn(notes)
    if not manifests:
        raise InputError("nothing was migrated: each workload is left out; the warnings say why")
    typer.echo(yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True), nl=False)
