"""Pictures of every page of the console, of a fleet with a past: `make screens`.

Pages are those of the console with the same views and templates; only the objects are made up
(`tests.past`), so that the pictures are the same each time.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Browser

from inferno_operator.cli.kubectl.choices import DryRun, decide, sort_plans
from inferno_operator.cli.kubectl.console.app import MEDIA
from inferno_operator.cli.kubectl.console.data import view_data
from inferno_operator.cli.kubectl.console.fleet import view_capacity, view_fleet
from inferno_operator.cli.kubectl.console.html import PageQuery, Pages, read_static_file
from inferno_operator.cli.kubectl.console.models import view_model, view_models
from inferno_operator.cli.kubectl.console.page import ConsolePage, SeenNamespace
from inferno_operator.cli.kubectl.console.plans import (
    PlanLoads,
    view_history,
    view_next_plan,
    view_plan,
    view_plans,
)
from inferno_operator.cli.kubectl.console.server import view_server
from inferno_operator.resources import Server
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InfernoError
from tests.browser.chromium import INSTALL, chromium, started
from tests.controlplane.processes import ROOT
from tests.past import LEADER, NAMESPACE, NOW, failing_world, large_world, phases_world, world

FOLDER = ROOT / "build" / "screens"
DOCS = ROOT / "docs" / "pictures"
SHOWN = {
    "/": "console-fleet.png",
    "/servers/premium-mistral-7b": "console-server.png",
    "/capacity": "console-capacity.png",
    "/history": "console-history.png",
}
"""Pages that the documentation shows the tops of, and the pictures."""

SMALL = {"width": 1280, "height": 700}
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
HEIGHT = 900
SERVER = "premium-mistral-7b"
WHAT_IF = ("capacity.MI300X+=4",)

View = Callable[[], ConsolePage]

WORLDS: Mapping[str, Callable[[], Sequence[Observation]]] = {
    "past": world,
    "large": large_world,
    "empty": list,
    "failing": failing_world,
    "phases": phases_world,
}
"""What may be in the namespace."""


def pages(seen: Sequence[Observation], *, all_objects: bool = False) -> Mapping[str, View]:
    """Every page of the console, by its address: one of each kind, or those of all objects."""

    def solved(changes: Sequence[str] = ()) -> DryRun:
        found = decide(seen, NAMESPACE, None, changes)
        certificate = replace(found.solution.certificate, seconds=0.1)
        return replace(found, solution=replace(found.solution, certificate=certificate))

    def next_page(changes: Sequence[str]) -> ConsolePage:
        return view_next_plan(namespace, solved(changes), changes, without=solved())

    def server_page(name: str) -> ConsolePage:
        past = PlanLoads().loads(sort_plans(seen))
        return view_server(namespace, solved(), name, past=past)

    namespace = SeenNamespace(seen, NAMESPACE, NOW)
    servers = [o.reference.key.name for o in seen if o.kind is Server]
    plans = [plan.metadata.name for plan in sort_plans(seen)]
    others = {
        **{f"/servers/{name}": partial(server_page, name) for name in servers},
        **{f"/plans/{name}": partial(view_plan, namespace, name) for name in plans},
    }
    server = next((name for name in servers if SERVER in name), SERVER)

    return {
        "/": lambda: view_fleet(namespace, PlanLoads().loads(sort_plans(seen))),
        "/next": partial(next_page, WHAT_IF),
        "/plans": partial(view_plans, namespace),
        "/plans/fleet-8": partial(view_plan, namespace, "fleet-8"),
        "/plans/fleet-7?with=fleet-8": partial(view_plan, namespace, "fleet-7", "fleet-8"),
        f"/servers/{server}": partial(server_page, server),
        "/capacity": partial(view_capacity, namespace),
        "/models": partial(view_models, namespace),
        "/models/mistral-7b": partial(view_model, namespace, "mistral-7b"),
        "/history": partial(view_history, namespace),
        "/data": partial(view_data, namespace, LEADER),
        **(others if all_objects else {}),
    }


@contextmanager
def served(views: Mapping[str, View]) -> Iterator[str]:
    """Yield the origin where the pages are."""
    html = Pages(NAMESPACE, str.upper)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, urlsplit(self.path).query
            name = path.removeprefix("/static/")
            if name in MEDIA:
                self._answer(MEDIA[name], read_static_file(name))
            elif self.path in views:
                try:
                    text = html.render(views[self.path](), path, PageQuery(parse_qsl(query)))
                except InfernoError as error:
                    text = html.render_problem("This does not work", str(error), path=path)
                self._answer("text/html; charset=utf-8", text.encode())
            else:
                self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Say nothing of requests."""

        def _answer(self, media: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def shoot(browser: Browser, origin: str, folder: Path, paths: Sequence[str]) -> Iterator[Path]:
    """Write pictures of pages at every width, light and dark."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            with browser.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme=scheme,  # type: ignore[arg-type]  # one of two
                java_script_enabled=False,  # without news
            ) as context:
                page = context.new_page()
                for path in paths:
                    page.goto(origin + path)
                    file = folder / f"{_named(path)}-{width}-{scheme}.png"
                    page.screenshot(path=file, full_page=True)
                    yield file


def shoot_for_docs(browser: Browser, origin: str, folder: Path) -> Iterator[Path]:
    """Write the pictures of the documentation."""
    with browser.new_context(viewport=SMALL, java_script_enabled=False) as context:  # type: ignore[arg-type]  # a size
        page = context.new_page()
        for path, name in SHOWN.items():
            page.goto(origin + path)
            page.screenshot(path=folder / name)
            yield folder / name


def _named(path: str) -> str:
    return urlsplit(path).path.strip("/").replace("/", "-") or "fleet"


def main() -> int:
    """Write the pictures; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.console_screens", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write them")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PATH",
        help="only these pages, such as /data or /plans/fleet-3",
    )
    parser.add_argument("--world", choices=WORLDS, default="past", help="what the namespace has")
    parser.add_argument("--docs", action="store_true", help="the pictures of the documentation")
    arguments = parser.parse_args()
    program = chromium()
    if program is None:
        print(INSTALL, file=sys.stderr)
        return 1
    folder = DOCS if arguments.docs else arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    seen = WORLDS[arguments.world]()
    views = pages(seen, all_objects=True)
    with started(program) as browser, served(views) as origin:
        paths = arguments.only or list(pages(seen))
        made = (
            shoot_for_docs(browser, origin, folder)
            if arguments.docs
            else shoot(browser, origin, folder, paths)
        )
        for file in made:
            print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
