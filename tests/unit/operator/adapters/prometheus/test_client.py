"""Queries of a real HTTP or TLS server: what it gets, and what its answers mean."""

import asyncio
import base64
import gzip
import math
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
import trustme

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_operator.runtime.observer import Observer
from inferno_operator.runtime.prometheus import (
    OversizedError,
    QueryResult,
    RefusedError,
    Sample,
)
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.unit.operator.adapters.prometheus.serving import (
    HOST,
    NO_ANSWER,
    TIME,
    UP,
    PrometheusServer,
    Reply,
    compressed,
    error,
    serving,
    success,
    vector,
)
from tests.unit.operator.adapters.secrets import mount, server_tls

P = ParamSpec("P")
T = TypeVar("T")

SECRET = "s3cr3t-t0k3n"  # noqa: S105 - that of a test
QUERY = "sum by (model_name) (rate(x_total[2m]))"
HALF = Reply(200, b'{"status":"succ', {"Content-Length": "1000", "Connection": "close"})
RIGHT = 'up{a="it\'s \\"quoted\\" \\\\ = & + % ; ü"}\n# a comment\n+\n1'


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    with serving() as running:
        yield running


async def query(endpoint: PrometheusEndpoint, expression: str = QUERY) -> QueryResult:
    async with connect(endpoint, clock=lambda: TIME) as prometheus:
        return await prometheus.query(expression)


async def failure(endpoint: PrometheusEndpoint, expression: str = QUERY) -> InfernoError:
    with pytest.raises(InfernoError) as raised:
        await query(endpoint, expression)
    return raised.value


def having(endpoint: PrometheusEndpoint, name: str, path: Path) -> PrometheusEndpoint:
    """The endpoint with a file of credentials, for the user `inferno`."""
    changes: dict[str, Any] = {"user": "inferno", name: path}
    return replace(endpoint, **changes)


class BesideLoop(ThreadPoolExecutor):
    """Threads that run what an event loop hands over, each only once the loop has run since.

    Attributes
    ----------
    results
        What the functions returned.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.results: list[object] = []

    def submit(self, function: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        def run() -> T:
            has_run = threading.Event()
            self._loop.call_soon_threadsafe(has_run.set)
            assert has_run.wait(PATIENCE_S)
            result = function(*args, **named)
            self.results.append(result)
            return result

        return super().submit(run)


@contextmanager
def waits() -> Iterator[list[float]]:
    """Yield for how long anything in this event loop is asked to wait in vain [s]; none waits."""
    loop, seconds = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def noted(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:  # noqa: ANN401 - handed on
        seconds.append(delay)
        return call_later(0, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "call_later", noted)
        yield seconds


def file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# What is asked


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(RIGHT, id="odd characters"),
        pytest.param("up or\n" + " or ".join(f"x{n}" for n in range(12_000)), id="100 kB"),
    ],
)
async def test_a_query_arrives_unchanged(server: PrometheusServer, expression: str) -> None:
    await query(server.endpoint, expression)

    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/query")
    assert asked.form == [("query", expression)]
    assert asked.params == []


async def test_a_query_of_a_time_has_begin_end_and_step(server: PrometheusServer) -> None:
    metric = {"model_name": "granite"}
    values = [[TIME, "1.5"], [TIME + 60, "NaN"]]
    matrix = {"resultType": "matrix", "result": [{"metric": metric, "values": values}]}
    server.replies = [success(matrix, warnings=["partial"])]
    async with connect(server.endpoint) as prometheus:
        answer = await prometheus.query_range(QUERY, TIME, TIME + 120, 60)

    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/query_range")
    times = {"start": f"{TIME:.3f}", "end": f"{TIME + 120:.3f}", "step": "60.000"}
    assert asked.form == [("query", QUERY), *times.items()]
    (series,) = answer.series
    assert (series.labels, series.times) == (metric, (TIME, TIME + 60))
    assert series.values[0] == 1.5
    assert math.isnan(series.values[1])
    assert answer.warnings == ("partial",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"resultType": "vector", "result": []}, "gives a vector, not numbers over time"),
        ({"resultType": "matrix", "result": {}}, "no series in the form of the API"),
        ({"resultType": "matrix", "result": [{"metric": {}}]}, "no series in the form of the API"),
        (
            {"resultType": "matrix", "result": [{"metric": {}, "values": [[TIME + 9999, "1"]]}]},
            "compare the clocks",
        ),
        (
            {"resultType": "matrix", "result": [{"metric": {}, "histograms": []}]},
            "native histograms",
        ),
    ],
)
async def test_an_answer_that_is_not_numbers_over_time_is_refused(
    server: PrometheusServer, data: object, problem: str
) -> None:
    server.replies = [success(data)]
    async with connect(server.endpoint) as prometheus:
        with pytest.raises(RefusedError, match=problem):
            await prometheus.query_range(QUERY, TIME, TIME + 120, 60)


@pytest.mark.parametrize("prefix", ["/prometheus", "/select/0/prometheus/"])
async def test_a_url_may_have_a_path_prefix(server: PrometheusServer, prefix: str) -> None:
    await query(replace(server.endpoint, url=server.url + prefix))

    assert [asked.path for asked in server.asked] == [prefix.rstrip("/") + "/api/v1/query"]


async def test_each_request_has_the_additional_parameters(server: PrometheusServer) -> None:
    more = (("namespace", "prod & test"), ("dedup", "true"), ("dedup", ""))
    server.usual = lambda asked: vector(UP) if asked.method == "POST" else success([])
    async with connect(replace(server.endpoint, params=more), clock=lambda: TIME) as prometheus:
        await prometheus.query(QUERY)
        await prometheus.metric_names("{a='b'}")

    assert [asked.params for asked in server.asked] == [
        list(more),
        [*more, ("match[]", "{a='b'}")],
    ]


# What is answered


LABELS = {"model_name": 'meta/Llama "8B"'}
PARTIAL = "store 10.0.0.1 did not answer: partial response"
REMARK = "PromQL info: metric might not be a counter: x"


@pytest.mark.parametrize(
    ("reply", "samples", "warnings"),
    [
        (
            vector({"metric": LABELS, "value": [TIME, "3.4985"]}, UP),
            (Sample(LABELS, TIME, 3.4985), Sample({"__name__": "up"}, TIME, 1.0)),
            (),
        ),
        (success({"resultType": "scalar", "result": [TIME, "2"]}), (Sample({}, TIME, 2.0),), ()),
        (vector(), (), ()),
        (vector(warnings=[REMARK, PARTIAL], infos=[REMARK]), (), (PARTIAL,)),
        (vector(isPartial=False), (), ()),
    ],
)
async def test_an_answer_has_a_sample_for_each_series_and_its_warnings(
    server: PrometheusServer, reply: Reply, samples: tuple[Sample, ...], warnings: tuple[str, ...]
) -> None:
    server.replies = [reply, vector(isPartial=True)]

    assert await query(server.endpoint) == QueryResult(samples, warnings)
    assert (await query(server.endpoint)).warnings  # of a VictoriaMetrics that lacks a part


async def test_values_that_are_no_numbers_are_passed_on(server: PrometheusServer) -> None:
    texts = ("NaN", "+Inf", "-Inf", "1e-05")
    server.replies = [vector(*({"metric": {}, "value": [TIME, text]} for text in texts))]

    nan, *others = [sample.value for sample in (await query(server.endpoint)).samples]

    assert math.isnan(nan)
    assert others == [math.inf, -math.inf, 1e-05]


# Credentials


async def test_user_and_password_are_sent(server: PrometheusServer, tmp_path: Path) -> None:
    password = file(tmp_path / "password", "pass: wörd \n")

    await query(replace(server.endpoint, user="inferno", password=password))

    scheme, _, text = server.asked[0].headers["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(text).decode()) == ("Basic", "inferno:pass: wörd ")


async def test_headers_of_a_file_are_sent(server: PrometheusServer, tmp_path: Path) -> None:
    headers = file(tmp_path / "headers", "X-Scope-OrgID: a|b\r\n\nX-Note:two words: three\n")

    await query(replace(server.endpoint, headers=headers))

    sent = server.asked[0].headers
    assert (sent["X-Scope-OrgID"], sent["X-Note"]) == ("a|b", "two words: three")


@pytest.mark.parametrize("name", ["token", "password", "headers", "authority", "certificate"])
async def test_a_file_that_is_missing_may_come(server: PrometheusServer, name: str) -> None:
    problem = await failure(having(server.endpoint, name, Path("/nowhere/secret")))

    assert isinstance(problem, UnavailableError)
    assert server.url in str(problem)
    assert "/nowhere/secret does not exist: mount its Secret" in str(problem)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("token", "", "does not contain a token"),
        ("token", f"{SECRET}\nX-Injected: {SECRET}", "does not contain a token"),
        ("token", f"{SECRET}ü", "does not contain a token"),
        ("headers", f"X-Fine: yes\n{SECRET}\n", "line 2 of"),
        ("headers", f"X Bad: {SECRET}\n", "line 1 of"),
        ("headers", f"X-Bad: {SECRET}\x00\n", "line 1 of"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_without_its_contents(
    server: PrometheusServer, tmp_path: Path, name: str, text: str,
    told: str,
) -> None:  # fmt: skip
    path = file(tmp_path / name, text)

    problem = await failure(having(server.endpoint, name, path))

    assert isinstance(problem, UnavailableError)
    assert told in str(problem)
    assert str(path) in str(problem)
    assert SECRET not in str(problem)
    assert not server.asked


# TLS


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA) -> Iterator[PrometheusServer]:
    """A server that asks for a certificate of the authority, and has one of it."""
    with serving(server_tls(authority, HOST, ssl.CERT_OPTIONAL)) as running:
        yield running


def trusting(authority: trustme.CA, path: Path) -> Path:
    authority.cert_pem.write_to_path(str(path))
    return path


@pytest.mark.parametrize(
    ("host", "asks", "told"),
    [
        (HOST, ssl.CERT_REQUIRED, ": the server may ask for a client certificate"),
        ("prometheus.example", ssl.CERT_NONE, ": set a URL whose host is in the certificate"),
    ],
)
async def test_tls_that_fails_is_told_with_what_to_do(
    authority: trustme.CA, tmp_path: Path, host: str, asks: ssl.VerifyMode, told: str
) -> None:
    with serving(server_tls(authority, host, asks)) as tls:
        trusted = trusting(authority, tmp_path / "ca.pem")

        problem = await failure(PrometheusEndpoint(tls.url, authority=trusted))

    assert isinstance(problem, UnavailableError)
    assert str(problem).endswith(told)


@pytest.mark.parametrize("given", [False, True], ids=["public authorities", "another authority"])
async def test_a_server_of_an_unknown_authority_is_not_trusted(
    tls: PrometheusServer, tmp_path: Path, *, given: bool
) -> None:
    another = trusting(trustme.CA(), tmp_path / "ca.pem") if given else None

    problem = await failure(PrometheusEndpoint(tls.url, authority=another))

    assert isinstance(problem, UnavailableError)
    assert "certificate verify failed" in str(problem)
    assert "set the certificate of the authority" in str(problem)
    assert not tls.asked


async def test_a_secret_that_is_swapped_is_used_for_the_next_query(
    tls: PrometheusServer, authority: trustme.CA, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    paths = [secret / name for name in ("token", "ca.crt", "tls.crt", "tls.key")]
    endpoint = PrometheusEndpoint(
        tls.url, paths[0], authority=paths[1], certificate=paths[2], key=paths[3]
    )
    mount(secret, "before", authority, authority)
    async with connect(endpoint, clock=lambda: TIME) as prometheus:
        await prometheus.query(QUERY)
        mount(secret, "wrong", authority, trusted=trustme.CA())
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await prometheus.query(QUERY)
        mount(secret, "after", authority, authority)
        await prometheus.query(QUERY)

    shown = [(a.headers["Authorization"], a.certificate["subjectAltName"]) for a in tls.asked]
    assert shown == [
        (f"Bearer {name}", (("DNS", f"{name}.example"),)) for name in ("before", "after")
    ]


async def test_a_server_without_tls_is_told_apart(server: PrometheusServer) -> None:
    problem = await failure(PrometheusEndpoint(server.url.replace("http:", "https:")))

    assert isinstance(problem, UnavailableError)
    assert "try http://" in str(problem)


# Failures


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        pytest.param(
            error(400, "bad_data", 'invalid parameter "query": 1:5: parse error:\nunclosed'),
            RefusedError,
            f'HTTP 400: invalid parameter "query": 1:5: parse error: unclosed; query: {QUERY}',
            id="parse error",
        ),
        pytest.param(
            error(422, "execution", "vector cannot contain metrics with the same labelset"),
            RefusedError,
            f"HTTP 422: vector cannot contain metrics with the same labelset; query: {QUERY}",
            id="execution",
        ),
        pytest.param(
            Reply(401, b"Unauthorized\n"),
            RefusedError,
            "HTTP 401: 'Unauthorized'; set a token, a password or a client certificate",
            id="unauthorized",
        ),
        pytest.param(
            Reply(404, b"404 page not found"),
            RefusedError,
            "HTTP 404: '404 page not found'; check the URL and its path prefix",
            id="not found",
        ),
        pytest.param(
            Reply(302, b"", {"Location": f"https://login.example/start?state={SECRET}"}),
            RefusedError,
            " redirects to https://login.example/start: set the URL of the API",
            id="redirect",
        ),
        pytest.param(
            Reply(400, b"Client sent an HTTP request to an HTTPS server.\n"),
            RefusedError,
            "HTTP 400: 'Client sent an HTTP request to an HTTPS server.'",
            id="TLS needed",
        ),
        pytest.param(
            Reply(200, b"<html>\n <title>Sign in</title>"),
            RefusedError,
            "the answer is not JSON: '<html> <title>Sign in</title>'",
            id="page",
        ),
        pytest.param(Reply(200, b""), RefusedError, "not JSON: an empty answer", id="empty"),
        pytest.param(
            Reply(200, b"[1]"), RefusedError, "not from Prometheus: '[1]'", id="other JSON"
        ),
        pytest.param(
            Reply(200, b"[" * 100_000), RefusedError, "the answer is not JSON", id="deep JSON"
        ),
        *(
            pytest.param(
                Reply(200, text),
                RefusedError,
                "the answer is not JSON",
                id=name,
            )
            for name, text in {
                "half of a surrogate": b'{"status":"success","data":"\\ud800"}',
                "no UTF-8": b'{"status":"success","data":"\xff"}',
                "a NaN of JavaScript": b'{"status":"success","data":NaN}',
            }.items()
        ),
        *(
            pytest.param(
                vector(UP, warnings=told), RefusedError, "warnings that are not a list", id=name
            )
            for name, told in {"a warning": "beware", "numbers as warnings": [1, 2]}.items()
        ),
        *(
            pytest.param(
                vector({"metric": {}, "value": [time, "1"]}), RefusedError, told, id=f"at {time:g}"
            )
            for time, told in {
                TIME + 3600: "the answer is of 2026-11-21T23:25:03Z, and was asked for 2026",
                TIME - 3600: "compare the clocks",
                0: "the answer is of 1970-01-01T00:00:00Z",
                -1e300: "the answer is of -1e+300 s after 1970",
                1e300: "the answer is of 1e+300 s after 1970",
            }.items()
        ),
        pytest.param(
            success({"resultType": "matrix", "result": []}),
            RefusedError,
            f"the query gives a matrix, not one number for each series; query: {QUERY}",
            id="matrix",
        ),
        pytest.param(
            success({"resultType": "string", "result": [1, "x"]}),
            RefusedError,
            "the query gives a string, not one number for each series",
            id="string",
        ),
        pytest.param(
            vector({"metric": {}, "histogram": [1, {"count": "1"}]}),
            RefusedError,
            "the query gives native histograms, not one number for each series",
            id="native histogram",
        ),
        *(
            pytest.param(
                reply, RefusedError, "the answer has no samples in the form of the API", id=name
            )
            for name, reply in {
                "no data": success(None),
                "no value": vector({"metric": {}}),
                "no number": vector({"metric": {}, "value": [TIME, "many"]}),
                "a number beside spaces": vector({"metric": {}, "value": [TIME, " 4 "]}),
                "a number with a group": vector({"metric": {}, "value": [TIME, "1_000"]}),
                "a number that is no text": vector({"metric": {}, "value": [TIME, 4]}),
                "a truth as a time": vector({"metric": {}, "value": [True, "4"]}),
                "a text as a pair": vector({"metric": {}, "value": "12"}),
                "a text as labels": vector({"metric": "up", "value": [TIME, "4"]}),
                "a number as a label": vector({"metric": {"a": 1}, "value": [TIME, "4"]}),
                "a text as a series": vector("up"),
                "an object as series": success({"resultType": "vector", "result": {"a": 1}}),
                "a list as data": success([UP]),
                "half a scalar": success({"resultType": "scalar", "result": [1]}),
            }.items()
        ),
        pytest.param(
            Reply(200, b"no gzip", {"Content-Encoding": "gzip"}),
            RefusedError,
            "Error -3 while decompressing",
            id="broken compression",
        ),
        pytest.param(
            error(503, "timeout", "query timed out in expression evaluation"),
            UnavailableError,
            f"HTTP 503: query timed out in expression evaluation; query: {QUERY}",
            id="too slow",
        ),
        pytest.param(
            Reply(429, b"too many requests"),
            UnavailableError,
            "HTTP 429: 'too many requests'",
            id="too many",
        ),
        pytest.param(NO_ANSWER, UnavailableError, "Prometheus does not answer: ", id="cut"),
        pytest.param(HALF, UnavailableError, "Prometheus does not answer: ", id="half"),
    ],
)  # fmt: skip
async def test_a_failure_that_stays_is_one_line_that_names_the_url_and_says_what_is_wrong(
    server: PrometheusServer,
    reply: Reply,
    kind: type[InfernoError],
    told: str,
) -> None:
    server.usual = lambda _: reply

    problem = await failure(server.endpoint)

    assert isinstance(problem, kind)
    assert str(problem).startswith(server.url)
    assert told in str(problem)
    assert "\n" not in str(problem)
    assert SECRET not in str(problem)
    assert len(server.asked) == (1 if kind is RefusedError else 2)


@pytest.mark.parametrize("reply", [Reply(429, b""), Reply(500, b""), NO_ANSWER, HALF])
async def test_a_failure_that_passes_is_not_noticed(server: PrometheusServer, reply: Reply) -> None:
    server.replies = [reply]

    answer = await query(server.endpoint)

    assert len(answer.samples) == 1
    assert [asked.form for asked in server.asked] == [[("query", QUERY)]] * 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("token", "check the bearer token in {}/token and its rights"),
        ("password", "check the password of user 'inferno' in {}/password"),
        ("headers", "check the headers in {}/headers"),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_credentials_names_their_file_but_not_what_they_are(
    server: PrometheusServer,
    tmp_path: Path,
    status: int,
    name: str,
    told: str,
) -> None:
    path = file(tmp_path / name, f"Authorization: {SECRET}" if name == "headers" else SECRET)
    server.usual = lambda _: Reply(status, b"no access")

    problem = await failure(having(server.endpoint, name, path))

    assert isinstance(problem, RefusedError)
    assert f"HTTP {status}: 'no access'; {told.format(tmp_path)}" in str(problem)
    assert SECRET not in str(problem)


async def test_the_wait_that_the_server_asks_for_is_kept(server: PrometheusServer) -> None:
    server.replies = [error(429, "", "slow down", **{"Retry-After": "1"})]

    with waits() as seconds:
        await query(server.endpoint)

    assert seconds == [1.0]


async def test_a_wait_longer_than_the_time_limit_is_not_kept(server: PrometheusServer) -> None:
    server.usual = lambda _: error(429, "", "slow down", **{"Retry-After": "3600"})

    with waits() as seconds:
        problem = await failure(replace(server.endpoint, timeout=60.0))

    assert isinstance(problem, UnavailableError)
    assert seconds == [30.0]  # not the hour that the server asks for


async def test_a_query_that_takes_too_long_is_tried_twice_and_given_up(
    server: PrometheusServer,
) -> None:
    server.gate.clear()

    problem = await failure(replace(server.endpoint, timeout=4.0))

    assert isinstance(problem, UnavailableError)
    assert f"no answer within 4 s; query: {QUERY}" in str(problem)
    # What was sent in time may be read later, on a busy machine.
    asked = await asyncio.to_thread(wait_until, lambda: len(server.asked), lambda n: n >= 2, "two")
    assert asked == 2


async def test_a_long_query_is_cut_in_messages(server: PrometheusServer) -> None:
    server.usual = lambda _: error(400, "bad_data", "parse error: " + "x" * 100_000)

    problem = await failure(server.endpoint, "up or\n" * 20_000)

    assert len(str(problem)) < 1000
    assert str(problem).endswith("up or up or...")


async def test_an_answer_that_is_too_large_is_given_up_also_if_it_is_compressed(
    server: PrometheusServer,
) -> None:
    server.usual = lambda _: compressed(Reply(200, bytes(9 * 2**20)))

    problem = await failure(server.endpoint)

    assert isinstance(problem, OversizedError)
    assert "larger than 8 MiB: restrict the query by labels" in str(problem)


async def test_an_answer_that_is_packed_twice_is_not_unpacked(server: PrometheusServer) -> None:
    once = gzip.compress(bytes(2**24))
    server.usual = lambda _: Reply(200, gzip.compress(once), {"Content-Encoding": "gzip, gzip"})

    problem = await failure(server.endpoint)

    assert isinstance(problem, RefusedError)
    assert "has the encoding 'gzip, gzip', and gzip was asked for" in str(problem)


async def test_a_large_answer_is_decoded_beside_the_loop(server: PrometheusServer) -> None:
    series = [{"metric": {"model": f"m{n}"}, "value": [TIME, "1"]} for n in range(50_000)]
    server.usual = lambda _: vector(*series)
    loop = asyncio.get_running_loop()
    beside = BesideLoop(loop)
    loop.set_default_executor(beside)

    answer = await query(server.endpoint)

    assert len(answer.samples) == 50_000
    assert any(result is answer for result in beside.results)


async def test_texts_are_cut_in_length_and_number(server: PrometheusServer) -> None:
    server.replies = [vector(UP, warnings=["w" * 5_000_000, *["again"] * 1000])]
    server.usual = lambda _: success(["n" * 5_000_000])

    warnings = (await query(server.endpoint)).warnings
    async with connect(server.endpoint) as prometheus:
        names = await prometheus.metric_names("{}")

    assert warnings == ("w" * 300 + "...", "again", "again", "and 998 more warnings")
    assert names == ("n" * 300 + "...",)


async def test_a_query_can_be_cancelled(server: PrometheusServer) -> None:
    server.gate.clear()
    task = asyncio.create_task(query(server.endpoint))
    await asyncio.to_thread(wait_until, lambda: server.asked, bool, "a request", 5.0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_observer_learns_how_each_query_ends(server: PrometheusServer) -> None:
    results: list[str] = []

    class Listener(Observer):
        def queried(self, result: str) -> None:
            results.append(result)

    stays = [Reply(500, b"")] * 2
    server.replies = [vector(UP), error(400, "", "bad"), Reply(200, b"page"), *stays]
    async with connect(server.endpoint, Listener(), lambda: TIME) as prometheus:
        await prometheus.query(QUERY)
        for _ in range(3):
            with pytest.raises(InfernoError):
                await prometheus.query(QUERY)

    assert results == ["Answered", "Refused", "Refused", "Unavailable"]
