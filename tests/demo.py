"""See the operator work on a real control plane: `make demo`."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from inferno_operator.cli.tables.table import TextTable
from tests.controlplane import ControlPlane, ControlPlaneError, kept
from tests.controlplane.api import Manifest
from tests.controlplane.binaries import Binaries
from tests.controlplane.operator_process import OperatorProcess
from tests.controlplane.processes import ROOT

SAMPLES = {"demo-small": ROOT / "samples" / "small", "demo-fleet": ROOT / "samples" / "fleet"}
RBAC = ROOT / "manifests" / "kustomize" / "rbac"
SERVICE_ACCOUNT = ("inferno-system", "inferno-operator")
DECISION_TIMEOUT_S = 60.0
INTERRUPTED = 130  # as a shell reports a program that Ctrl-C ended


class Steps:
    """Prints what happens, numbered, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._count = 0

    def __call__(self, what: str) -> None:
        self._count += 1
        elapsed = time.monotonic() - self._started
        print(f"[{elapsed:5.1f} s] {self._count}. {what}", flush=True)


def main() -> int:
    """Run, keep or stop the demo; the exit status."""
    arguments = _parser().parse_args()
    record = kept.cache_folder(os.environ) / "demo.json"
    if arguments.stop:
        print("Stopped the demo" if kept.stop(record) else "No demo is running")
        return 0
    if kept.running(record):
        print("A demo was left running; end it first: make demo-stop", file=sys.stderr)
        return 1
    return exit_status(lambda: run(record if arguments.keep else None))


def exit_status(demo: Callable[[], None]) -> int:
    """Run a demo; tell on standard error why it failed."""
    try:
        demo()
    except ControlPlaneError as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started has ended", file=sys.stderr)
        return INTERRUPTED
    return 0


def run(keep_record: Path | None) -> None:
    """Show everything; leave it running, noted in `keep_record`, where there is one."""
    step = Steps()
    step("Find etcd, kube-apiserver and kubectl")
    binaries = Binaries(os.environ)
    binaries.find_all(("etcd", "kube-apiserver", "kubectl"))
    step("Start etcd and kube-apiserver")
    with ControlPlane(binaries) as control_plane:
        step("Install the custom resources (crds/)")
        control_plane.install_crds(ROOT / "crds")
        step("Start the operator, with the rights of its service account and no others")
        operator = start_operator(control_plane)
        with log_on_failure(operator):
            operator.wait_until_ready()
            demonstrate(control_plane, operator, step)
            if keep_record:
                control_plane.detach(keep_record, {})
                print_how_to_look_around(control_plane, operator)
            else:
                step("Stop the operator and the control plane")
                stop(operator)
    if not keep_record:
        step("Done")


def start_operator(
    control_plane: ControlPlane,
    environment: Mapping[str, str] | None = None,
    namespace: str | None = None,
) -> OperatorProcess:
    """Start the operator as the service account of the manifests.

    It watches a namespace; None: all namespaces.
    """
    control_plane.kubectl("apply", "--kustomize", RBAC)
    kubeconfig = control_plane.service_account_kubeconfig(*SERVICE_ACCOUNT)
    return OperatorProcess(
        control_plane.processes, "operator", kubeconfig, namespace, environment=environment
    )


def stop(operator: OperatorProcess) -> None:
    """Ask the operator to end; it must do so cleanly."""
    code = operator.stop()
    if code != 0:
        raise ControlPlaneError(f"the operator, asked to end, did so with status {code}")


@contextmanager
def log_on_failure(operator: OperatorProcess) -> Iterator[None]:
    """Make a failure one line, with the last lines of the operator's log below it."""
    try:
        yield
    except ControlPlaneError as error:
        line = str(error).splitlines()[0]
        tail = f"the operator's last lines:\n{operator.log_tail}"
        raise ControlPlaneError(f"{line}\n{tail}") from error


def demonstrate(control_plane: ControlPlane, operator: OperatorProcess, step: Steps) -> None:
    """Apply the samples, ask for an optimization, and show what was decided."""
    for namespace, folder in SAMPLES.items():
        step(f"Apply {folder.relative_to(ROOT)} in namespace {namespace}")
        control_plane.create_namespace(namespace)
        control_plane.kubectl("apply", "--namespace", namespace, "--kustomize", folder)
    for namespace in SAMPLES:
        step(f"Ask for an optimization in {namespace}, and wait for the decisions")
        optimize(control_plane, operator, namespace)
    servers = {namespace: control_plane.items("servers", namespace) for namespace in SAMPLES}
    for namespace, its_servers in servers.items():
        heading = f"\n{namespace} (costs in cents/hour)"
        print(heading, table(its_servers), saving(its_servers), sep="\n")
    print("\n$ kubectl get servers --namespace demo-small")
    print(control_plane.kubectl("get", "servers", "--namespace", "demo-small").stdout)
    require_decisions(server for its_servers in servers.values() for server in its_servers)


def optimize(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> None:
    """Set `optimize: true` on the Optimizers, and wait until the operator has set it back."""

    def is_done(optimizer: Manifest) -> bool:
        operator.check_running()
        return not optimizer["spec"]["optimize"]

    names = [item["metadata"]["name"] for item in control_plane.items("optimizers", namespace)]
    for name in names:
        control_plane.patch("optimizer", name, {"spec": {"optimize": True}}, namespace)
    for name in names:
        control_plane.wait_for("optimizer", name, is_done, namespace, DECISION_TIMEOUT_S)


def require_decisions(servers: Iterable[Manifest]) -> None:
    """Every Server has an allocation, or a reason why not."""
    undecided = [
        server["metadata"]["name"]
        for server in servers
        if not _allocation(server, "desiredAlloc") and not _allocated_condition(server)
    ]
    if undecided:
        raise ControlPlaneError(f"no decision for {', '.join(undecided)}")


def table(servers: Iterable[Manifest]) -> TextTable:
    """Make a line for each Server: what it has, what it should have, or why nothing."""
    now = ("SERVER", "CLASS", "MODEL", "CURRENT", ">COST")
    return TextTable((*now, "DESIRED", ">COST", "REASON"), [_row(server) for server in servers])


def saving(servers: list[Manifest]) -> str:
    """One line with the cost of all Servers, now and as decided."""
    served = sum(_allocation(server, "desiredAlloc") is not None for server in servers)
    current = sum(_cost(server, "currentAlloc") for server in servers)
    desired = sum(_cost(server, "desiredAlloc") for server in servers)
    change = f"{abs(current - desired):.2f} {'less' if desired <= current else 'more'}"
    share = f" ({desired / current - 1:+.0%})" if current else ""
    count = f"{served} of {len(servers)} have an allocation"
    return f"Total: {current:.2f} -> {desired:.2f}, {change}{share}; {count}"


def print_how_to_look_around(control_plane: ControlPlane, operator: OperatorProcess) -> None:
    """Say what a person can try on what was left running."""
    kubectl = "kubectl" if shutil.which("kubectl") else str(control_plane.kubectl_program)
    optimizer = control_plane.items("optimizers", "demo-fleet")[0]["metadata"]["name"]
    ask = '{"spec": {"optimize": true}}'
    print(
        "Left running. To look around:",
        f"  export KUBECONFIG={control_plane.kubeconfig}",
        f"  export PATH={Path(sys.executable).parent}:$PATH  # inferno and kubectl inferno",
        f"  {kubectl} get servers --all-namespaces",
        f"  {kubectl} inferno top --namespace demo-fleet",
        f"  {kubectl} inferno console --namespace demo-fleet",
        f"  {kubectl} describe optimizer {optimizer} --namespace demo-fleet",
        f"  {kubectl} patch optimizer {optimizer} -n demo-fleet --type merge --patch '{ask}'",
        f"  tail -f {operator.log_path}",
        "To end it: make demo-stop",
        sep="\n",
    )


def _allocation(server: Manifest, field: str) -> Manifest | None:
    """Return an allocation that names an accelerator; an empty one is none."""
    allocation: Manifest = server["spec"].get(field) or {}
    return allocation if allocation.get("accelerator") else None


def _row(server: Manifest) -> tuple[str, ...]:
    spec = server["spec"]
    return (
        *(server["metadata"]["name"], spec["class"], spec["model"]),
        *_cells(_allocation(server, "currentAlloc")),
        *_cells(_allocation(server, "desiredAlloc")),
        _reason(server),
    )


def _cells(allocation: Manifest | None) -> tuple[str, str]:
    if allocation is None:
        return "-", ""
    placed = f"{allocation['numReplicas']} x {allocation['accelerator']}"
    return placed, f"{allocation.get('cost', 0):.2f}"


def _cost(server: Manifest, field: str) -> float:
    allocation = _allocation(server, field)
    return float(allocation.get("cost", 0)) if allocation else 0.0


def _allocated_condition(server: Manifest) -> Manifest | None:
    conditions: list[Manifest] = server.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "Allocated" and c.get("reason")), None)


def _reason(server: Manifest) -> str:
    condition = _allocated_condition(server)
    if condition is None or _allocation(server, "desiredAlloc"):
        return ""
    return f"{condition['reason']}: {condition['message']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo",
        description="See the operator work on a real control plane.",
        epilog="example: python -m tests.demo --keep",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="leave everything running at the end")
    choice.add_argument("--stop", action="store_true", help="end what --keep left running")
    return parser


if __name__ == "__main__":
    sys.exit(main())
