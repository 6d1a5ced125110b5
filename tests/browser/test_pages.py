"""Every page in a browser: nothing fails, leaves, overlaps, or is hard to read or to reach."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from inferno_operator.cli.inferno.main import main
from inferno_operator.cli.kubectl.console.app import MEDIA
from inferno_operator.cli.kubectl.console.html import NAVIGATION, PageQuery, Pages, read_static_file
from inferno_operator.cli.kubectl.console.page import ConsolePage
from inferno_operator.cli.kubectl.console.serve import NO_NAMESPACE
from tests.browser.looks import LINKS, watched
from tests.cluster.console import running_console, running_proxied_console, token_of, user_in
from tests.cluster.scene import Scene
from tests.cluster.test_plans import fill, propose, wait_for_phases
from tests.conftest import ROOT, StartOperator
from tests.console_screens import WORLDS, pages, served
from tests.controlplane import ControlPlane
from tests.in_process import called
from tests.past import world
from tests.tiers import extended

pytestmark = pytest.mark.slow

PATIENCE_MS = 60_000
ADDRESSES = [address for address, _ in NAVIGATION]
LOAD = {"spec": {"currentAlloc": {"load": {"arrivalRate": 61.5}}}}


HEADINGS = {
    "fleet": ("Plan for 20 servers", "Servers", "Cards", "Served load by priority"),
    "troubles": ("Plan for 4 servers", "Less than needed", "Servers", "Cards"),
}


@pytest.mark.parametrize("sample", ["troubles", *extended("fleet")])
def test_a_report_opens_from_disk(sample: str, browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = called(main, ["report", ROOT / "samples" / sample, "--html", file])
    assert done.returncode == 0, done.stderr

    assert_opens(file, browser, *HEADINGS[sample])


@pytest.mark.extended
def test_the_page_of_a_replay_opens_from_disk(browser: Browser, tmp_path: Path) -> None:
    file, load = tmp_path / "replay.html", ROOT / "samples/traces/servegen-m-large.csv"
    policies = ("--policy", "inferno", "--policy", "hpa", "--policy", "static-peak")
    options = ("--trace", load, "--scale", "0.3", "--hours", "2", *policies, "--html", file)
    done = called(main, ["replay", ROOT / "samples/fleet", *options])
    assert done.returncode == 0, done.stderr

    assert_opens(file, browser)


def assert_opens(file: Path, browser: Browser, *headings: str) -> None:
    """Assert that a file is a page without faults that asks for nothing else, without a network."""
    with watched(browser, offline=True) as seen:
        seen.page.goto(file.as_uri())
        assert list(seen.faults()) == []
        assert (seen.errors, seen.outside(file.as_uri())) == ([], [])
        assert seen.requests == [file.as_uri()]
        for heading in headings:
            expect(seen.page.get_by_role("heading", name=heading, exact=True)).to_be_visible()
        assert seen.page.evaluate("performance.getEntriesByType('resource').length") == 0


@pytest.mark.minutes
@pytest.mark.extended
def test_every_page_of_a_fleet_with_a_past_is_easy_to_read(browser: Browser) -> None:
    views = pages(world())

    with served(views) as origin, watched(browser) as seen:
        for path in views:
            seen.page.goto(origin + path)
            assert list(seen.faults()) == [], path
        assert seen.outside(origin) == []


@pytest.mark.parametrize("name", ["empty", *extended("large", "failing", "phases")])
def test_nothing_is_cut_off_whatever_the_namespace_has(name: str, browser: Browser) -> None:
    views = pages(WORLDS[name]())

    with served(views) as origin, watched(browser) as seen:
        links = set()
        for path in views:
            seen.page.goto(origin + path)
            assert list(seen.cut_off()) == [], path
            assert seen.page.locator("main").inner_text().strip(), path
            links.add(seen.page.evaluate(LINKS))
        assert len(links) == 1


@pytest.mark.parametrize("name", ["past", *extended("large", "failing", "phases")])
def test_a_sheet_of_paper_has_all_columns(name: str, browser: Browser) -> None:
    views = pages(WORLDS[name]())

    with served(views) as origin, watched(browser) as seen:
        for path in views:
            seen.page.goto(origin + path)
            assert list(seen.cut_on_paper()) == [], path


@pytest.mark.parametrize(("now", "made"), [("prod", 2), ("staging", 3)])
def test_a_page_becomes_that_of_another_namespace_as_a_whole(
    now: str, made: int, browser: Browser
) -> None:
    origin = "http://console.test"

    def answer(route: Route) -> None:
        path, kind = route.request.url.removeprefix(origin), "text/html"
        if path == "/news":
            kind, body = "text/event-stream", b"data: 2\n\n"
        elif path == "/":
            number = seen.requests.count(f"{origin}/")
            html = Pages("prod" if number == 1 else now, str.upper).render
            page = ConsolePage(f"Fleet {number}", (), dict)
            body = html(page, "/", PageQuery(), version=min(number, 2)).encode()
        else:
            name = path.rpartition("/")[2]
            kind, body = MEDIA[name], read_static_file(name)
        route.fulfill(body=body, content_type=kind)

    with watched(browser) as seen:
        seen.page.route("**/*", answer)
        seen.page.goto(origin)

        expect(seen.page.locator("h1")).to_have_text(f"Fleet {made}")
        expect(seen.page.locator("header")).to_contain_text(f"Namespace {now}")


@pytest.mark.extended
@pytest.mark.cluster
@pytest.mark.usefixtures("crds_installed")
def test_the_console_is_read_and_used_in_a_browser(
    control_plane: ControlPlane,
    namespace: str,
    operator: StartOperator,
    browser: Browser,
    tmp_path: Path,
) -> None:
    scene = Scene(control_plane, namespace)
    propose(scene, operator)
    kubeconfig = user_in(control_plane, namespace, "ann", "inferno-view", "inferno-approve")

    with (
        running_console(kubeconfig, namespace, tmp_path / "log") as address,
        watched(browser) as seen,
    ):
        page, origin = seen.page, address.partition("/?")[0]
        page.goto(address)
        assert page.url == f"{origin}/"
        for path in (*ADDRESSES, "/plans/inferno-1", "/servers/s", "/models/m"):
            page.goto(origin + path)
            assert list(seen.faults()) == [], path
        page.goto(origin)
        page.get_by_role("link", name="Look at it and decide").click()
        page.get_by_role("button", name="Approve").click()
        wait_for_phases(scene, inferno_1="Written")
        expect(page.get_by_role("button", name="Approve")).to_have_count(0, timeout=PATIENCE_MS)
        page.goto(origin)
        control_plane.patch("server", "s", LOAD, namespace)
        expect(page.get_by_role("cell", name="61.5")).to_be_visible(timeout=PATIENCE_MS)
        assert (seen.errors, seen.outside(origin)) == ([], [])


@pytest.mark.extended
@pytest.mark.cluster
@pytest.mark.usefixtures("crds_installed")
def test_people_behind_a_proxy_choose_a_namespace_in_a_browser(
    control_plane: ControlPlane, namespace: str, browser: Browser, tmp_path: Path
) -> None:
    fill(Scene(control_plane, namespace))
    token = token_of(control_plane, namespace, "ann", "inferno-view")

    with (
        running_proxied_console(control_plane, tmp_path) as origin,
        watched(browser, any_certificate=True) as seen,
    ):
        page = seen.page
        page.set_extra_http_headers({"Authorization": f"Bearer {token}"})  # as a proxy does
        page.goto(origin)
        assert page.url == f"{origin}/namespaces"
        assert list(seen.faults()) == []
        page.get_by_label("Namespace").fill(namespace)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("rowheader", name="s", exact=True)).to_be_visible(
            timeout=PATIENCE_MS
        )
        assert list(seen.faults()) == []
        page.get_by_role("link", name="Other namespace").click()
        page.get_by_label("Namespace").fill("My Models")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("alert")).to_have_text(NO_NAMESPACE)
        assert list(seen.faults()) == []
        assert seen.outside(origin) == []
