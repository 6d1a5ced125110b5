"""The program `kubectl inferno`: its commands, which read the cluster and call the library."""

from typing import TYPE_CHECKING

import typer

from inferno_operator.cli.console import HELP, Version, examples, run_app
from inferno_operator.cli.kubectl import generate, optimization, plans, servers
from inferno_operator.cli.kubectl.console import command as console
from inferno_operator.cli.kubectl.places import somewhere

if TYPE_CHECKING:
    from inferno_operator.adapters.kubernetes.kubectl import KubectlOptions

app = typer.Typer(
    add_completion=False,
    context_settings=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the plugin and exit; see `console.run_app`."""
    run_app(app, "kubectl inferno")


@app.callback(epilog=examples("kubectl inferno top --namespace llm"))
@somewhere
def kubectl_inferno(_place: "KubectlOptions", _version: Version = False) -> None:
    """Look at LLM servers and decide where they run.

    Works on the Servers, Optimizers and other Inferno objects of one namespace.
    """


for commands in (optimization, generate, servers, plans, console):
    app.add_typer(commands.app)

if __name__ == "__main__":
    main()
