"""Definitions of other projects, from their Go modules, which go.mod files of ours pin."""

import json
import os
import subprocess
from pathlib import Path

from tests.controlplane.errors import BinaryError
from tests.controlplane.programs import MODULES

KINDS = ("prometheusrules", "servicemonitors")


def prometheus_definitions() -> list[Path]:
    """The files of the definitions of the Prometheus Operator that our manifests need.

    Raises
    ------
    BinaryError
        There is no Go, or it cannot fetch them.
    """
    module = "github.com/prometheus-operator/prometheus-operator"
    folder = _fetched("prometheus-operator", module) / "example" / "prometheus-operator-crd"
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]


def keda_definitions() -> list[Path]:
    """The files of the definitions of the objects that `inferno generate keda` prints.

    Raises
    ------
    BinaryError
        There is no Go, or it cannot fetch them.
    """
    folder = _fetched("keda", "github.com/kedacore/keda/v2") / "config" / "crd" / "bases"
    return [folder / f"keda.sh_{kind}.yaml" for kind in ("scaledobjects", "triggerauthentications")]


def _fetched(pin: str, module: str) -> Path:
    """The folder of a module; fetched once, into Go's own cache."""
    try:
        fetched = subprocess.run(
            ["go", "mod", "download", "-json", module],
            cwd=MODULES / pin,
            env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly"},
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BinaryError(f"no definitions of {module}: {error}") from error
    return Path(json.loads(fetched.stdout)["Dir"])
