"""Options of the commands that print autoscalers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

SERVICE = "http://inferno-operator.inferno-system.svc:8081"
"""The Service of the operator, where the manifests put it."""


class Autoscaler(StrEnum):
    """What carries out the decisions."""

    KEDA = "keda"
    HPA = "hpa"


class ScaledObjectOwner(StrEnum):
    """Who makes the ScaledObjects, and takes only their triggers."""

    KSERVE = "kserve"


@dataclass(frozen=True, slots=True)
class Access:
    """How autoscalers read decisions, and the most replicas that they may set.

    `url` is that of the operator's Service; `secret` names the Secret with the token in each
    namespace.
    """

    url: str
    secret: str
    most: int


Kind = Annotated[
    Autoscaler, typer.Argument(metavar="keda|hpa", help="What scales.", show_default=False)
]
For = Annotated[
    ScaledObjectOwner | None,
    typer.Option(
        "--for",
        metavar="kserve",
        help="Print the triggers alone, because KServe makes the ScaledObjects.",
        show_default=False,
    ),
]
Url = Annotated[str, typer.Option(metavar="URL", help="The Service of the operator, for KEDA.")]
TokenSecret = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Secret in the namespace of the Servers, with the key token, for KEDA."
    ),
]
MaxReplicas = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=2**31 - 1, help="Most replicas of a workload."),
]

SECRET = "inferno-publish-token"  # noqa: S105 - the name of a Secret
MOST = 1000
"""Beyond what is decided; decisions keep to the capacity."""
