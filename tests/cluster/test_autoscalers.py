"""What `kubectl inferno generate` prints, on a real API server with the real HPA controller.

Only KEDA is a stand-in: its polling loop, and its server of external metrics, which the API server
asks as it would ask KEDA's. The definitions of its objects are KEDA's own.
"""

import asyncio
import os
import signal
import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiohttp import web

from inferno_operator.cli.kubectl.main import main
from tests.autoscalers.keda import Keda
from tests.cluster.scene import Scene
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.cluster import DEPLOYMENTS
from tests.controlplane.deployments import deployment
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.deployment.definitions import keda_definitions
from tests.in_process import called
from tests.unit.operator import objects

Manifest = dict[str, Any]

GATE = "--feature-gates=HPAConfigurableTolerance=true"
SYNC = "--horizontal-pod-autoscaler-sync-period=1s"
HPA = f"{DEPLOYMENTS},horizontal-pod-autoscaler-controller"

KINDS = "inferno,scaledobjects,triggerauthentications"

NAMESPACE = "llm"
SECRET = "inferno-publish-token"  # noqa: S105 - the name of a Secret
TOKEN = "t0ken"  # noqa: S105 - of the test
POLL_S = 0.3

GROUP = "/apis/external.metrics.k8s.io/v1beta1"
API: Manifest = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "external.metrics.k8s.io/v1beta1",
    "resources": [],
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with our definitions and KEDA's, and the HPA controller."""
    with ControlPlane(more_options=[GATE]) as plane:
        plane.install_crds(ROOT / "crds")
        for file in keda_definitions():
            plane.install_crds(file)
        wait_until(
            lambda: plane.kubectl("get", "--all-namespaces", KINDS, check=False).stderr,
            lambda problem: "No resources found" in problem,
            "the kinds to be served",
        )
        plane.start_controller_manager(HPA, [GATE, SYNC])
        plane.create_namespace(NAMESPACE)
        # A Server that names no class and model that exist is held.
        Scene(plane, NAMESPACE).apply(objects.service_class(), objects.model())
        yield plane


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of operators that publish decisions."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    return {"INFERNO_PUBLISH_TOKEN_FILE": str(token)}


@pytest.fixture
def operator(plane: ControlPlane, variables: dict[str, str]) -> Iterator[OperatorProcess]:
    """An operator that publishes decisions."""
    operator = started(plane, "operator", variables)
    operator.wait_until_ready()
    yield operator
    operator.stop()


def started(plane: ControlPlane, name: str, variables: dict[str, str]) -> OperatorProcess:
    return OperatorProcess(
        plane.processes, name, plane.kubeconfig, NAMESPACE, variables, command=None
    )


class Deployed:
    """The scale subresource of a Deployment, as KEDA reads and writes it."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self._plane = plane
        self._name = name

    @property
    def replicas(self) -> int:
        found: int = self._plane.get("deployment", self._name, NAMESPACE)["spec"]["replicas"]
        return found

    @replicas.setter
    def replicas(self, count: int) -> None:
        patch = {"spec": {"replicas": count}}
        self._plane.patch("deployment", self._name, patch, NAMESPACE, "scale")


def server(*workloads: Manifest) -> Manifest:
    return objects.server("Chat", spec={"actuation": "Publish", "workloads": list(workloads)})


def decide(plane: ControlPlane, **replicas: int) -> None:
    """Write a decision on the Server, as an optimization does."""
    ((accelerator, count),) = replicas.items()
    desired = {"accelerator": accelerator, "numReplicas": count}
    condition = objects.condition("Allocated", "Allocated")
    plane.patch("server", "chat", {"spec": {"desiredAlloc": desired}}, NAMESPACE)
    plane.patch("server", "chat", {"status": {"conditions": [condition]}}, NAMESPACE, "status")


def replicas(plane: ControlPlane) -> dict[str, int]:
    found = plane.items("deployments", NAMESPACE)
    return {item["metadata"]["name"]: item["spec"]["replicas"] for item in found}


async def until(plane: ControlPlane, **expected: int) -> None:
    """Wait for numbers of replicas, while the stand-in serves."""
    wanted = {name.replace("_", "-"): count for name, count in expected.items()}
    await asyncio.to_thread(
        wait_until, lambda: replicas(plane), lambda now: now == wanted, str(wanted), PATIENCE_S
    )


def generated(plane: ControlPlane, *arguments: str) -> str:
    """What the command prints, once the API server has accepted it."""
    where = ("--namespace", NAMESPACE, "--kubeconfig", plane.kubeconfig)
    done = called(main, ["generate", *arguments, *where])
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    plane.kubectl("apply", "--validate=strict", "--filename", "-", input=text)
    return text


class MetricsServer:
    """KEDA's server of external metrics, for HPAs."""

    def __init__(self, kedas: dict[str, Keda]) -> None:
        self._kedas = kedas

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get(GROUP, self._discover)
        application.router.add_get(GROUP + "/namespaces/{namespace}/{metric}", self._answer)
        return application

    async def _discover(self, _: web.Request) -> web.Response:
        return web.json_response(API)

    async def _answer(self, request: web.Request) -> web.Response:
        name = request.query["labelSelector"].partition("=")[2]
        value = await self._kedas[name].metric()
        if value is None:
            return web.json_response({"kind": "Status", "code": 500}, status=500)
        item = {
            "metricName": request.match_info["metric"],
            "metricLabels": {},
            "timestamp": "2026-01-01T00:00:00Z",
            "value": f"{value:g}",
        }
        answer = {"kind": "ExternalMetricValueList", "apiVersion": GROUP.removeprefix("/apis/")}
        return web.json_response({**answer, "metadata": {}, "items": [item]})


@asynccontextmanager
async def keda(plane: ControlPlane) -> AsyncGenerator[dict[str, Keda], None]:
    """Run the stand-in on the objects that the API server has; yields its states by name."""
    (authentication,) = plane.items("triggerauthentications", NAMESPACE)
    data = plane.get("secret", SECRET, NAMESPACE)["data"]
    secrets = {SECRET: {key: b64decode(value).decode() for key, value in data.items()}}
    async with httpx.AsyncClient(timeout=1.0) as client:
        kedas = {}
        for item in plane.items("scaledobjects", NAMESPACE):
            target = Deployed(plane, item["spec"]["scaleTargetRef"]["name"])
            clock = asyncio.get_running_loop().time
            name = item["metadata"]["name"]
            kedas[name] = Keda(item, authentication, secrets, target, clock, client)
        async with serving(plane, MetricsServer(kedas)) as port:
            await asyncio.to_thread(connect, plane, port, kedas)
            polling = asyncio.create_task(poll(kedas))
            try:
                yield kedas
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)


@asynccontextmanager
async def serving(plane: ControlPlane, server: MetricsServer) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    credentials = plane.folder / "credentials"
    context.load_cert_chain(credentials / "server.crt", credentials / "server.key")
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def poll(kedas: dict[str, Keda]) -> None:
    while True:
        await asyncio.gather(*(keda.poll() for keda in kedas.values()))
        await asyncio.sleep(POLL_S)


def connect(plane: ControlPlane, port: int, kedas: dict[str, Keda]) -> None:
    """Create the HPAs that KEDA makes, and tell the API server where their metrics are."""
    service = {"name": "keda-metrics", "namespace": NAMESPACE, "port": port}
    spec = {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": service,
    }
    Scene(plane, NAMESPACE).apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "keda-metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        *(dict(keda.hpa()) for keda in kedas.values()),
    )
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": spec,
    }
    plane.kubectl("apply", "--filename", "-", input=yaml.safe_dump(registration))


@pytest.fixture
def chat(plane: ControlPlane, operator: OperatorProcess) -> None:
    """A Server with two Deployments, a decision for it, and the objects that are printed."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    workloads = [{"accelerator": name, "name": f"chat-{name.lower()}"} for name in ("A", "B")]
    deployments = deployment("chat-a", 10), deployment("chat-b", 0)
    Scene(plane, NAMESPACE).apply(account, server(*workloads), *deployments)
    decide(plane, A=11)
    plane.kubectl("delete", "--ignore-not-found", "secret", SECRET, "--namespace", NAMESPACE)
    literal = f"--from-literal=token={TOKEN}"
    plane.kubectl("create", "secret", "generic", SECRET, "--namespace", NAMESPACE, literal)
    generated(plane, "keda", "--url", operator.health_url)


@pytest.mark.extended
@pytest.mark.usefixtures("chat")
async def test_keda_and_an_hpa_carry_decisions_out_and_hold_while_the_operator_hangs(
    plane: ControlPlane, operator: OperatorProcess
) -> None:
    async with keda(plane) as kedas:
        await until(plane, chat_a=11, chat_b=0)
        decide(plane, A=30)
        await until(plane, chat_a=30, chat_b=0)
        decide(plane, A=27)
        await until(plane, chat_a=27, chat_b=0)

        os.kill(operator.pid, signal.SIGSTOP)
        decide(plane, B=2)
        before = {name: item.errors for name, item in kedas.items()}
        await asyncio.to_thread(
            wait_until,
            lambda: {name: item.errors - before[name] for name, item in kedas.items()},
            lambda errors: min(errors.values()) > 4,
            "errors of all workloads",
            PATIENCE_S,
        )
        held = replicas(plane)
        os.kill(operator.pid, signal.SIGCONT)

        assert held == {"chat-a": 27, "chat-b": 0}
        await until(plane, chat_a=0, chat_b=2)


@pytest.fixture
def apart(plane: ControlPlane, chat: None, operator: OperatorProcess) -> Iterator[None]:
    """The Server with a Deployment for each role, and the objects that are printed then."""
    del chat  # has the token
    workloads = [
        {"accelerator": "A", "name": "chat-a"},
        {"accelerator": "B", "role": "Prefill", "name": "chat-b"},
        {"accelerator": "A", "role": "Decode", "name": "chat-c"},
    ]
    Scene(plane, NAMESPACE).apply(server(*workloads), deployment("chat-c", 0))
    generated(plane, "keda", "--url", operator.health_url)
    yield
    plane.patch("server", "chat", {"spec": {"desiredAlloc": None}}, NAMESPACE)  # it has roles
    kinds = "deployment,scaledobject,hpa"
    plane.kubectl("delete", "--ignore-not-found", kinds, "chat-c", "--namespace", NAMESPACE)


@pytest.mark.extended
@pytest.mark.usefixtures("apart")
async def test_keda_carries_a_decision_for_both_roles_out(plane: ControlPlane) -> None:
    parts = {"prefill": ("B", 3), "decode": ("A", 2)}
    roles = {role: {"accelerator": a, "numReplicas": n} for role, (a, n) in parts.items()}
    whole = {"accelerator": "A", "numReplicas": 5, "roles": roles}
    async with keda(plane):
        await until(plane, chat_a=11, chat_b=0, chat_c=0)
        plane.patch("server", "chat", {"spec": {"desiredAlloc": whole}}, NAMESPACE)
        await until(plane, chat_a=0, chat_b=3, chat_c=2)


@pytest.mark.extended
def test_the_api_server_keeps_the_tolerance_of_an_hpa(plane: ControlPlane) -> None:
    workload = {"accelerator": "A", "name": "chat-a"}
    Scene(plane, NAMESPACE).apply(server(workload))

    printed = yaml.safe_load(generated(plane, "hpa", "chat"))
    (stored,) = (
        item
        for item in plane.items("horizontalpodautoscalers", NAMESPACE)
        if item["metadata"]["name"] == printed["metadata"]["name"]
    )

    assert [rules["tolerance"] for rules in stored["spec"]["behavior"].values()] == ["0", "0"]
    plane.kubectl("delete", "hpa", printed["metadata"]["name"], "--namespace", NAMESPACE)


@pytest.fixture
def pair(plane: ControlPlane, variables: dict[str, str]) -> Iterator[list[OperatorProcess]]:
    """Two operators of which one leads."""
    elect = {**variables, "INFERNO_LEADER_ELECTION": "true"}
    operators = [started(plane, name, elect) for name in ("first", "second")]
    wait_until(
        lambda: [operator.log for operator in operators],
        lambda logs: all("health and metrics on" in log for log in logs),
        "the start of both",
    )
    yield operators
    for operator in operators:
        if operator.exit_code is None:
            operator.stop()


def asked(operator: OperatorProcess) -> tuple[int, Any]:
    """Status and content of the answer of an operator; it may be that of an error."""
    url = f"{operator.health_url}/v1/desired/{NAMESPACE}/chat/A"
    answer = httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S)
    return answer.status_code, answer.json()


def exported(operator: OperatorProcess) -> list[str]:
    page = httpx.get(f"{operator.health_url}/metrics", timeout=PATIENCE_S).text
    return [line for line in page.splitlines() if line.startswith("inferno_desired_replicas{")]


@pytest.mark.extended
def test_an_operator_that_does_not_lead_answers_too_but_not_without_its_watch(
    plane: ControlPlane, pair: list[OperatorProcess]
) -> None:
    Scene(plane, NAMESPACE).apply(server({"accelerator": "A", "name": "chat-a"}))
    decide(plane, A=5)
    answer = 200, {"replicas": 5, "accelerator": "A"}

    wait_until(lambda: [*map(asked, pair)], lambda seen: seen == [answer] * 2, "answers")
    wait_until(
        lambda: sorted(len(exported(operator)) for operator in pair),
        lambda counts: counts == [0, 1],
        "series of one operator",
    )

    (standby,) = (operator for operator in pair if not exported(operator))
    plane.stop_api_server()
    try:
        status, body = wait_until(lambda: asked(standby), lambda seen: seen != answer, "an error")
    finally:
        plane.start_api_server()

    assert (status, body.keys()) == (503, {"error"})
    wait_until(lambda: asked(standby), lambda seen: seen == answer, "the number again")
