"""Commands of the documentation that are not run as they stand."""

from tests.reference.shown import Shown

ELSEWHERE = {
    "helm install": "tests/cluster/deployment/test_helm.py",
    "helm upgrade": "tests/cluster/deployment/test_helm.py",
    "inferno calibrate --prometheus": "tests/prometheus/test_past.py",
    "inferno measure": "tests/prometheus/test_past.py",
    "inferno operator": "tests/cli/test_operator.py",
    "inferno replay samples/measured --prometheus": "tests/prometheus/test_past.py",
    "inferno study": "tests/cli/test_study.py",
    "inferno report": "tests/unit/operator/cli/test_report.py",
    "inferno serve": "tests/rest/test_start.py",
    "kubectl get servers --namespace demo-small": ".ci/run",  # `make demo` runs it
    "kubectl apply --filename chat.yaml": "tests/cluster/test_admission.py",
    "kubectl apply --filename nightly.yaml": "tests/cluster/test_admission.py",
    "kubectl create --filename objects.yaml": "tests/cluster/test_deletion.py",
    "kubectl create secret generic inferno-publish-token": "tests/cluster/test_autoscalers.py",
    "kubectl create secret generic inferno-metrics-token": "tests/manifests/test_rendering.py",
    "kubectl inferno console": "tests/cluster/test_console.py",
    "kubectl inferno plan --namespace": "tests/cluster/test_kubectl_plugin.py",
    "kubectl inferno generate": "tests/cluster/test_autoscalers.py",
    "kubectl delete clusterroles,": "tests/cluster/deployment/test_helm.py",
    "kubectl get accelerators,": "tests/cluster/test_deletion.py",
    "kubectl scale deployment controller-": "tests/cluster/deployment/test_make.py",
    "kubectl wait --for=delete": "tests/cluster/test_deletion.py",
    "make build-installer": "tests/cluster/deployment/test_make.py",
    "make demo": ".ci/run",
    "make demo-loop": "tests/cluster/test_day.py",
    "make deploy": "tests/cluster/deployment/test_make.py",
    "docker buildx imagetools inspect": "Dockerfile",  # there is no registry
    "make dist": "tests/manifests/test_dist.py",
    "pipx install": "tests/manifests/test_dist.py",
    "kubectl apply --server-side --filename dist/": "tests/manifests/test_dist.py",
    "kubectl krew install": "tests/manifests/test_dist.py",
    "make docker-build": "Dockerfile",  # there is no container engine
    "make docker-push": "Dockerfile",  # there is no registry
    "make extended-test": ".ci/run",
    "make help": "Makefile",
    "make install": "tests/cluster/deployment/test_make.py",
    "make release": "tests/cluster/deployment/test_make.py",
    "make setup": ".ci/run",  # what every other target begins with
    "make test": ".ci/run",
    "make undeploy": "tests/cluster/deployment/test_make.py",
    "pip install": "manifests/image/install.sh",  # a test runs it, and takes minutes
    "python -m tests.bench": "tests/unit/bench/test_bench.py",
}
"""Beginnings of commands that are not run as they stand, and where they are."""


def elsewhere(command: Shown) -> bool:
    """Whether a command is one of these."""
    return command.text.startswith(tuple(ELSEWHERE))
