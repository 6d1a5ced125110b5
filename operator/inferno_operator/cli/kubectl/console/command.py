"""`kubectl inferno console`."""
# ruff: noqa: PLC0415 - the command imports what it needs, so that `--help` comes at once

from typing import TYPE_CHECKING, Annotated

import typer

from inferno_operator.cli.kubectl.places import run, somewhere

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

app = typer.Typer()


@app.command(
    epilog="Example: kubectl inferno console --namespace llm"
    "\n\nExample: kubectl inferno console --port 8000 --no-browser"
)
@somewhere
def console(
    place: "KubectlOptions",
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free port.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the address in the browser.")
    ] = True,
) -> None:
    """Show the namespace as pages in a browser on this machine, until Ctrl-C.

    The pages have your rights, and nobody else can open them: the address that is printed opens
    one browser, once. Plans can be approved there with the ClusterRole inferno-approve.
    """
    from inferno_operator.cli.kubectl.console.serve import serve

    try:
        run(place, lambda session: serve(session, port, typer.echo, browser=browser))
    except KeyboardInterrupt:
        raise typer.Exit from None
