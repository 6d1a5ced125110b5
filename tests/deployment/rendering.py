"""Objects as kustomize and Helm render them."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT
from tests.deployment.programs import output_of

Manifest = dict[str, Any]

OVERLAYS = ROOT / "manifests" / "kustomize" / "overlays"
CHART = ROOT / "manifests" / "helm" / "inferno"
NAMESPACE = "inferno-system"
RELEASE = "inferno"


def kustomize(kubectl: Path, folder: Path) -> list[Manifest]:
    """What `kubectl apply --kustomize` would apply."""
    return _rendered([kubectl, "kustomize", folder])


def helm_template(helm: Path, *options: str | Path, release: str = RELEASE) -> list[Manifest]:
    """What `helm install` would apply."""
    where = ["--namespace", NAMESPACE, "--kube-version", "1.34"]
    return _rendered([helm, "template", release, CHART, *where, *options])


def find(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    return next(m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name))


def copy_with_components(
    folder: Path, overlay: str, *components: str, patches_of: Iterable[str] = ()
) -> Path:
    """An overlay of a user's own, made of one of ours, components and patches of other overlays."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [_relative(OVERLAYS / overlay, folder)],
        "components": [
            _relative(OVERLAYS.parent / "components" / name, folder) for name in components
        ],
        "patches": [patch for other in patches_of for patch in _patches(OVERLAYS / other)],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return folder


def _patches(overlay: Path) -> Iterator[Manifest]:
    """The patches of an overlay, with their texts: kustomize reads no file of another folder."""
    for patch in yaml.safe_load((overlay / "kustomization.yaml").read_text())["patches"]:
        text = (overlay / patch["path"]).read_text()
        yield {**{k: v for k, v in patch.items() if k != "path"}, "patch": text}


def _relative(path: Path, folder: Path) -> str:
    """The way there, as kustomize wants it."""
    return os.path.relpath(path, folder.resolve())


def _rendered(command: Sequence[str | Path]) -> list[Manifest]:
    return [
        document for document in yaml.load_all(output_of(command), yaml.CSafeLoader) if document
    ]
