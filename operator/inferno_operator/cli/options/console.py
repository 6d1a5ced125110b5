"""Options of the commands that serve the console."""

from pathlib import Path
from typing import Annotated

import typer

Port = Annotated[
    int,
    typer.Option(metavar="PORT", min=0, max=65535, help="Where to listen; 0 takes a free port."),
]

OperatorNamespace = Annotated[
    str,
    typer.Option(
        metavar="NAMESPACE", help="Namespace of the operator; its Lease there names the leader."
    ),
]

Browser = Annotated[
    bool, typer.Option("--browser/--no-browser", help="Open the address in the browser.")
]

Origin = Annotated[
    str, typer.Option(metavar="URL", help="The address that browsers use: https://HOST.")
]

Certificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificate for TLS; without one, the proxy is answered by plain HTTP.",
    ),
]

PrivateKey = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
]

Host = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        help="Address to listen on; by default all with a certificate, and 127.0.0.1 without one.",
    ),
]

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - in a pod

SuggestedNamespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", help="What the page to choose a namespace suggests."
    ),
]

UnusedKeyFile = Annotated[Path | None, typer.Option("--key-file", hidden=True)]

UnusedBehindProxy = Annotated[bool, typer.Option("--behind-proxy", hidden=True)]

ApiServerUrl = Annotated[str, typer.Option(metavar="URL", help="Address of the API server.")]

ApiServerAuthorities = Annotated[
    Path,
    typer.Option(metavar="FILE", help="Authorities that sign the certificate of the API server."),
]

OF_POD = "https://kubernetes.default.svc"
"""The API server, as a pod reaches it."""

AUTHORITIES_OF_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
"""Where a pod has the authorities of the API server."""
