"""`kubectl inferno console`."""
# ruff: noqa: PLC0415 - the command imports what it needs, so that `--help` comes at once

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.console import examples, interruptible
from inferno_operator.cli.interrupts import run_async
from inferno_operator.cli.kubectl.places import run, somewhere
from inferno_operator.cli.options.currency import IN_CENTS, Currency, money_of
from inferno_optimizer.errors import InputError

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

app = typer.Typer()

Port = Annotated[
    int,
    typer.Option(metavar="PORT", min=0, max=65535, help="Where to listen; 0 takes a free port."),
]
OperatorNamespace = Annotated[
    str,
    typer.Option(metavar="NAMESPACE", help="Where the operator runs, whose Lease says who leads."),
]


@app.command(
    epilog=examples(
        "kubectl inferno console --namespace llm",
        "kubectl inferno console --port 8000 --no-browser",
    )
)
@somewhere
def console(
    place: "KubectlOptions",
    *,
    port: Port = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in the browser.")
    ] = True,
    operator_namespace: OperatorNamespace = "inferno-system",
    currency: Currency = IN_CENTS,
) -> None:
    """Show the namespace as pages in a browser, until Ctrl-C.

    The pages have your rights, and nobody else can open them: the address that is printed opens
    one browser, once. Plans can be approved there with the ClusterRole inferno-approve.
    """
    from inferno_operator.cli.kubectl.console.page import ConsoleSettings
    from inferno_operator.cli.kubectl.console.serve import serve

    settings = ConsoleSettings(money_of(currency), operator_namespace)
    with interruptible(status=0):
        run(place, lambda session: serve(session, port, settings, typer.echo, browser=browser))


@app.command(
    epilog=examples(
        "kubectl inferno console-server --origin https://inferno.example.com"
        " --key-file /secrets/key --certificate /tls/tls.crt --private-key /tls/tls.key",
        "kubectl inferno console-server --origin https://inferno.example.com"
        " --key-file /secrets/key --port 8080 --behind-proxy",
    )
)
def console_server(  # noqa: PLR0913 - the options of a server
    *,
    origin: Annotated[
        str, typer.Option(metavar="URL", help="The address that browsers use: https://HOST.")
    ],
    key_file: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="File with the key that signs cookies, of 32 characters or more."
        ),
    ],
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certificate for TLS; without one, a proxy must end TLS."
        ),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "0.0.0.0",  # noqa: S104 - in a pod
    port: Port = 8443,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAME", help="What the form to log in suggests."),
    ] = "default",
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="Take the token of each request from its header Authorization, which an"
            " authenticating proxy sets; people then choose a namespace only.",
        ),
    ] = False,
    api_server: Annotated[
        str, typer.Option(metavar="URL", help="Address of the API server.")
    ] = "https://kubernetes.default.svc",
    api_server_ca: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Authorities that sign the certificate of the API server."
        ),
    ] = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"),
    operator_namespace: OperatorNamespace = "inferno-system",
    currency: Currency = IN_CENTS,
) -> None:
    """Serve the console to many people, by their tokens.

    Each has the rights of the token with which they log in; the server has none of its own. Tokens
    are kept in memory until the logout, for 8 hours at most.
    """
    import asyncio
    import time

    from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
    from inferno_operator.cli.kubectl.console.hosted import hosted_console
    from inferno_operator.cli.kubectl.console.page import ConsoleSettings
    from inferno_operator.cli.kubectl.console.serve import Listener, serve_hosted

    server = ApiServerAddress(api_server, api_server_ca)
    key = read_key(key_file)
    settings = ConsoleSettings(money_of(currency), operator_namespace)
    timing = (asyncio.sleep, time.monotonic)
    console = hosted_console(
        server, namespace, origin, key, *timing, settings, behind_proxy=behind_proxy
    )
    with interruptible(status=0):
        listener = Listener(host, port, certificate, private_key)
        run_async(serve_hosted(console, listener, lambda text: typer.echo(text, err=True)))


def read_key(file: Path) -> str:
    """Return the key in a file.

    Raises
    ------
    InputError
        The file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"--key-file {file}: {error.strerror or error}") from error
