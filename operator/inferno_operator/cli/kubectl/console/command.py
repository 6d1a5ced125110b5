"""`kubectl inferno console`."""
# ruff: noqa: PLC0415 - the command imports what it needs, so that `--help` comes at once

from typing import TYPE_CHECKING

import typer

from inferno_operator.cli.console import examples, interruptible
from inferno_operator.cli.interrupts import run_async
from inferno_operator.cli.kubectl.places import run, somewhere
from inferno_operator.cli.options import console as options
from inferno_operator.cli.options.currency import IN_CENTS, Currency, money_of

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

app = typer.Typer()


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
    port: options.Port = 0,
    browser: options.Browser = True,
    operator_namespace: options.OperatorNamespace = "inferno-system",
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
        " --certificate /tls/tls.crt --private-key /tls/tls.key",
        "kubectl inferno console-server --origin https://inferno.example.com --port 8080",
    )
)
def console_server(  # noqa: PLR0913 - the options of a server
    *,
    origin: options.Origin,
    certificate: options.Certificate = None,
    private_key: options.PrivateKey = None,
    host: options.Host = None,
    port: options.Port = 8443,
    namespace: options.SuggestedNamespace = "default",
    api_server: options.ApiServerUrl = options.OF_POD,
    api_server_ca: options.ApiServerAuthorities = options.AUTHORITIES_OF_POD,
    operator_namespace: options.OperatorNamespace = "inferno-system",
    currency: Currency = IN_CENTS,
    key_file: options.UnusedKeyFile = None,  # noqa: ARG001 - command lines that have it go on
    behind_proxy: options.UnusedBehindProxy = True,  # noqa: ARG001 - as key_file
) -> None:
    """Serve the console behind an authenticating proxy.

    The proxy shows a token with each request, in its header Authorization. Each person has the
    rights of that token; the server has none of its own.
    """
    import asyncio

    from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
    from inferno_operator.cli.kubectl.console.page import ConsoleSettings
    from inferno_operator.cli.kubectl.console.serve import (
        LOOPBACK,
        Listener,
        proxied_console,
        serve_proxied,
    )

    server = ApiServerAddress(api_server, api_server_ca)
    settings = ConsoleSettings(money_of(currency), operator_namespace)
    console = proxied_console(server, namespace, origin, asyncio.sleep, settings)
    with interruptible(status=0):
        address = host or (options.ALL_ADDRESSES if certificate else LOOPBACK)
        listener = Listener(address, port, certificate, private_key)
        run_async(serve_proxied(console, listener, lambda text: typer.echo(text, err=True)))
