"""Definitions of the Prometheus Operator, from its Go module, which a go.mod of ours pins."""

import json
import os
import subprocess
from pathlib import Path

from tests.controlplane.errors import BinaryError
from tests.controlplane.programs import MODULES

MODULE = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("prometheusrules", "servicemonitors")


def prometheus_definitions() -> list[Path]:
    """The files of the definitions that our manifests need; fetched once, into Go's own cache.

    Raises
    ------
    BinaryError
        There is no Go, or it cannot fetch them.
    """
    try:
        fetched = subprocess.run(
            ["go", "mod", "download", "-json", MODULE],
            cwd=MODULES / "prometheus-operator",
            env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=readonly"},
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise BinaryError(f"no definitions of the Prometheus Operator: {error}") from error
    folder = Path(json.loads(fetched.stdout)["Dir"], "example", "prometheus-operator-crd")
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS]
