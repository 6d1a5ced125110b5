"""What tests and the demo do with a cluster."""

import functools
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.api import Api, Manifest
from tests.controlplane.errors import ApiError, KubectlError
from tests.controlplane.waiting import PATIENCE_S, wait_until


class Client:
    """A cluster as kubectl shows it.

    Attributes
    ----------
    api
        The API server, for what takes no kubectl.
    kubectl_program
        The kubectl to run.
    kubeconfig
        The administrator's, used unless a call names another one.
    kubectl_cache
        Where kubectl keeps what it discovered, instead of the user's home.
    """

    api: Api
    kubectl_program: Path
    kubeconfig: Path
    kubectl_cache: Path

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002 - as in subprocess.run
        kubeconfig: Path | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end.

        Raises
        ------
        KubectlError
            When it fails and `check` is set, or takes too long; shows what it said.
        """
        environment = os.environ | {
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.kubectl_cache),
        }
        what = "kubectl " + " ".join(map(str, arguments))
        try:
            completed = subprocess.run(
                [self.kubectl_program, *arguments],
                input=input,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"{what}: no end within {PATIENCE_S:g} s") from error
        if check and completed.returncode:
            raise KubectlError(f"{what}: {completed.stderr.strip()}")
        return completed

    def get(self, resource: str, name: str, namespace: str | None = None) -> Manifest:
        """Read one object.

        Raises
        ------
        ApiError
            When there is none, or the API server is away.
        """
        return self.api.get(resource, name, namespace)

    def items(self, resource: str, namespace: str | None = None) -> list[Manifest]:
        """Read all objects of a kind or a category, each kind sorted by name."""
        return self.api.items(resource, namespace)

    def patch(
        self,
        resource: str,
        name: str,
        patch: Manifest,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Manifest:
        """Merge `patch` into an object and return the result."""
        return self.api.patch(resource, name, patch, namespace, subresource)

    def wait_for(
        self,
        resource: str,
        name: str,
        condition: Callable[[Manifest], bool],
        namespace: str | None = None,
        timeout: float = PATIENCE_S,
    ) -> Manifest:
        """Wait until an object exists and meets `condition`, and return it.

        Raises
        ------
        WaitTimeoutError
            After `timeout` seconds; shows the object, or the error, that was seen last.
        """

        def state() -> Manifest | str:
            try:
                return self.get(resource, name, namespace)
            except ApiError as error:  # not there yet, or the API server is away
                return str(error)

        def met(state: Manifest | str) -> bool:
            return not isinstance(state, str) and condition(state)

        what = f"{resource}/{name} as expected"
        manifest = wait_until(state, met, what, timeout)
        assert not isinstance(manifest, str)
        return manifest

    def requests(self) -> Counter[tuple[str, str, str]]:
        """Count the requests until now by verb, resource with its subresource, and status code."""
        lines = self.kubectl("get", "--raw", "/metrics").stdout.splitlines(keepends=True)
        text = "".join(line for line in lines if line.startswith("apiserver_request_total{"))
        counts = Counter[tuple[str, str, str]]()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                told = sample.labels
                parts = filter(None, (told["resource"], told["subresource"]))
                counts[told["verb"], "/".join(parts), told["code"]] += int(sample.value)
        return counts

    def create_namespace(self, name: str) -> None:
        self.api.create_namespace(name)

    def install_crds(self, path: Path) -> None:
        """Apply the custom resource definitions of a folder or file; served on return."""
        self.api.apply(_definitions(path))
        self.wait_until_served(path)

    def wait_until_served(self, path: Path | None = None) -> None:
        """Wait until the API server answers for the definitions of a folder or file, or for all.

        A definition is established a moment before the API server knows the paths of its objects;
        until then every request gets "404 page not found". And a definition that is deleted before
        its objects were ever listed keeps the API server busy for minutes: it lists them to delete
        them, finds "storage is (re)initializing", and tries again later and later.

        kubectl keeps for hours what it discovered, and does not look again for a category.
        """
        self.api.forget_discovered()
        for definition in _definitions(path) if path else self.items("crds"):
            name = definition["metadata"]["name"]
            self.wait_for("crd", name, _is_established)
            wait_until(functools.partial(self._is_served, name), bool, f"{name} served")
        shutil.rmtree(self.kubectl_cache, ignore_errors=True)  # there is none at first

    def _is_served(self, resource: str) -> bool:
        try:
            self.items(resource)
        except ApiError:
            return False
        return True


def _definitions(path: Path) -> list[Manifest]:
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]


def _is_established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()  # null in some files
    return any((c["type"], c["status"]) == ("Established", "True") for c in conditions)
