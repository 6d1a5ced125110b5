"""Manifests of autoscalers that carry out the decisions for Servers; pure.

The objects avoid what would keep an autoscaler from the decided number: the tolerance of a
HorizontalPodAutoscaler (10 %), its stabilization windows and rates, and KEDA's fallback.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import yaml

from inferno_operator.cli.options import Access, Autoscaler, ScaledObjectOwner
from inferno_operator.resources import Resource, Server, Workload
from inferno_operator.resources.observation import only
from inferno_operator.resources.serving_roles import serving_role
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Document = dict[str, Any]

AUTHENTICATION = "inferno-operator"  # name of the TriggerAuthentication of each namespace

# What Kubernetes allows as the value of a label, by which an HPA selects its metric.
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

PERIOD_SECONDS = 15  # how often a HorizontalPodAutoscaler decides, and KEDA asks


TOLERANCE = """\
# Kubernetes 1.35 or newer carries out every decision. 1.33 and 1.34 need the feature gate
# HPAConfigurableTolerance on kube-apiserver and kube-controller-manager. Without `tolerance: 0`,
# changes of up to 10 % are not carried out, such as 10 to 11 replicas.
"""
# What somebody who applies the objects must know, by autoscaler.
HEADERS = {
    Autoscaler.KEDA: f"""\
# KEDA 2.18 or newer; older releases drop `tolerance`.
{TOLERANCE}\
# There is no `fallback`: while the operator does not answer, the numbers of replicas stay. With a
# fallback, KEDA would start a replica of each workload that is to have none.
""",
    Autoscaler.HPA: f"""\
# An adapter must serve the metric inferno_desired_replicas as an external metric.
{TOLERANCE}\
# An HPA neither sets 0 replicas nor starts a workload that has 0: use KEDA for that.
""",
}

# What somebody who writes triggers into an object of KServe must know.
FOR_KSERVE = f"""\
# For spec.scaling.keda of each LLMInferenceService; KServe makes the ScaledObject from it.
# The TriggerAuthentication {AUTHENTICATION} must be in its namespace: it is the first object that
# `inferno generate keda` prints. pollingInterval, cooldownPeriod and advanced are there too: take
# them over, or changes of up to 10 % are not carried out.
"""


def generate_autoscalers(
    autoscaler: Autoscaler,
    resources: Iterable[Resource],
    names: Sequence[str],
    access: Access,
    namespace: str | None,
    owner: ScaledObjectOwner | None,
) -> tuple[str, list[str]]:
    """Return the autoscalers of Servers as YAML, and a warning for each that the operator scales.

    `autoscaler`, `access`: what carries out the decisions, and how they are read; `resources`,
    `names`: the objects, and the names of the Servers; without names, all that name workloads;
    `namespace`: the namespace of Servers that name none; `owner`: who makes the objects and
    takes only their triggers; None: they are objects. Raises InputError if there is no such
    Server, none names workloads, or a field of one cannot be used.
    """
    known = [*only(Server, resources)]
    servers = [server for server in known if server.spec.workloads and not names]
    if not names and not servers:
        raise InputError("no Server has spec.workloads: name the objects to scale there")
    for name in names:
        found = [each for each in known if name in (each.metadata.name, each.spec.name)]
        if not found:
            near = alternatives(name, sorted(server.metadata.name for server in known))
            raise InputError(f"Server {name}: there is none{near}")
        servers.append(found[0])
    text = (build_triggers if owner else build_manifests)(autoscaler, servers, access, namespace)
    warnings = [
        f"{_describe(server)}: set spec.actuation to Publish, or the operator and the autoscaler"
        " both scale it"
        for server in servers
        if server.spec.actuation != "Publish"
    ]
    return text, warnings


def build_manifests(
    autoscaler: Autoscaler, servers: Iterable[Server], access: Access, namespace: str | None
) -> str:
    """Return the objects for all workloads of Servers as YAML, with comments.

    `autoscaler`: what carries out the decisions; `servers`: the Servers; `access`: how the
    decisions are read; `namespace`: the namespace of Servers that name none. Raises InputError
    if a field of a Server cannot be used; the message names both.
    """
    make = _build_keda if autoscaler is Autoscaler.KEDA else _build_hpa
    documents = list(make(_list_workloads(servers, namespace), access))
    text: str = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
    return HEADERS[autoscaler] + text


def build_triggers(
    autoscaler: Autoscaler, servers: Iterable[Server], access: Access, namespace: str | None
) -> str:
    """Return the triggers for all workloads as YAML, for KServe, which makes the ScaledObjects.

    Raises InputError as `build_manifests` does, or if the autoscaler is not KEDA: KServe takes no
    triggers of others from a user.
    """
    if autoscaler is not Autoscaler.KEDA:
        raise InputError("--for kserve: only KEDA has triggers: inferno generate keda")
    parts = (
        f"# {each.workload.kind} {each.namespace}/{each.workload.name} on {each.workload.place}\n"
        + yaml.safe_dump({"triggers": [_build_trigger(each, access)]}, sort_keys=False)
        for each in _list_workloads(servers, namespace)
    )
    return FOR_KSERVE + "---\n".join(parts)


class _Scaled(NamedTuple):
    """What one autoscaler scales: a workload of a Server, and its place there."""

    namespace: str
    server: Server
    number: int
    workload: Workload

    @property
    def metadata(self) -> Document:
        return {"name": _shorten_name(self.workload), "namespace": self.namespace}

    @property
    def target(self) -> Document:
        workload = self.workload
        return {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}


def _list_workloads(servers: Iterable[Server], namespace: str | None) -> list[_Scaled]:
    """Return the workloads of Servers; one object cannot follow two decisions."""
    scaled: list[_Scaled] = []
    holders: dict[tuple[str, str], str] = {}
    for server in servers:
        own, title = server.metadata.namespace or namespace, _describe(server)
        if not own:
            raise InputError(f"{title}: metadata.namespace: it is missing: give --namespace")
        if not server.spec.workloads:
            raise InputError(f"{title}: spec.workloads: it is empty: name the objects to scale")
        for index, workload in enumerate(server.spec.workloads):
            field = f"{title}: spec.workloads[{index}]"
            # The scale subresource of a serving has the number of its groups.
            if role := serving_role(workload):
                raise InputError(
                    f"{field}.role: no autoscaler scales the role {role!r} of {workload.kind}"
                    f" {workload.name!r}: leave spec.actuation at Scale"
                )
            holder = holders.setdefault((own, _shorten_name(workload)), field)
            if holder != field:
                raise InputError(f"{field}.name: {workload.name!r} is the name of {holder} too")
            scaled.append(_Scaled(own, server, index, workload))
    return scaled


def _describe(server: Server) -> str:
    return f"Server {'/'.join(filter(None, (server.metadata.namespace, server.metadata.name)))}"


def _build_keda(scaled: Sequence[_Scaled], access: Access) -> Iterator[Document]:
    token = {"parameter": "token", "name": access.secret, "key": "token"}
    for namespace in sorted({each.namespace for each in scaled}):
        metadata = {"name": AUTHENTICATION, "namespace": namespace}
        spec: Document = {"secretTargetRef": [token]}
        yield _dump("keda.sh/v1alpha1", "TriggerAuthentication", metadata, spec)
    for each in scaled:
        spec = {
            "scaleTargetRef": each.target,
            "pollingInterval": PERIOD_SECONDS,
            "cooldownPeriod": 0,
            "minReplicaCount": 0,
            "maxReplicaCount": access.most,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _build_behavior(access)}},
            "triggers": [_build_trigger(each, access)],
        }
        yield _dump("keda.sh/v1alpha1", "ScaledObject", each.metadata, spec)


def _build_trigger(scaled: _Scaled, access: Access) -> Document:
    path = (scaled.namespace, scaled.server.metadata.name, scaled.workload.place)
    return {
        "type": "metrics-api",
        "metricType": "AverageValue",
        "metadata": {
            "url": "/".join((access.url.rstrip("/"), "v1/desired", *(quote(p, "") for p in path))),
            "valueLocation": "replicas",
            "targetValue": "1",
            "authMode": "bearer",
        },
        "authenticationRef": {"name": AUTHENTICATION},
    }


def _build_hpa(scaled: Sequence[_Scaled], access: Access) -> Iterator[Document]:
    for each in scaled:
        labels = _build_labels(each.server, each.number, each.workload)
        metric = {"name": "inferno_desired_replicas", "selector": {"matchLabels": labels}}
        target = {"type": "AverageValue", "averageValue": "1"}
        spec = {
            "scaleTargetRef": each.target,
            "minReplicas": 1,
            "maxReplicas": access.most,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            "behavior": _build_behavior(access),
        }
        yield _dump("autoscaling/v2", "HorizontalPodAutoscaler", each.metadata, spec)


def _build_labels(server: Server, index: int, workload: Workload) -> Mapping[str, str]:
    """Return the labels of the metric; an HPA can select only what may be a label's value.

    A role is told by the name of its workload: its accelerator is labelled with the role.
    """
    path, labels = f"spec.workloads[{index}]", {"server": server.metadata.name}
    fields = {"metadata.name": server.metadata.name}
    if workload.role == "Both":
        labels["accelerator"] = fields[f"{path}.accelerator"] = workload.accelerator
    else:
        labels["workload"] = fields[f"{path}.name"] = workload.name
        if [each.name for each in server.spec.workloads].count(workload.name) > 1:
            raise InputError(
                f"{_describe(server)}: {path}.name: {workload.name!r} is the name of another"
                " item too, so an HPA cannot tell their metrics apart: use keda"
            )
    for field, value in fields.items():
        if not LABEL_VALUE.fullmatch(value):
            raise InputError(
                f"{_describe(server)}: {field}: {value!r} cannot be the value of a label, by which"
                " an HPA selects its metric: use keda"
            )
    return labels


def _build_behavior(access: Access) -> Document:
    """Return rules that carry out each decision at once: the plan is stable by itself."""
    at_once = {"tolerance": 0, "stabilizationWindowSeconds": 0, "selectPolicy": "Max"}
    up = {"type": "Pods", "value": access.most, "periodSeconds": PERIOD_SECONDS}
    down = {"type": "Percent", "value": 100, "periodSeconds": PERIOD_SECONDS}
    return {
        "scaleUp": {**at_once, "policies": [up]},
        "scaleDown": {**at_once, "policies": [down]},
    }


def _shorten_name(workload: Workload) -> str:
    """Return the name of the object for a workload: no other workload has the same."""
    if workload.kind == "Deployment":
        return workload.name
    return f"{workload.name}-{workload.kind.lower()}"


def _dump(api_version: str, kind: str, metadata: Document, spec: Document) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
