"""`inferno admission`: what it says when it cannot start."""

import os
import subprocess
import sys
from pathlib import Path

import trustme

from tests.controlplane.operator_process import own_variables

WITHOUT_KOPF = """
import sys
sys.modules["kopf"] = None
from inferno_operator.cli.entry import inferno
inferno()
"""


def started(*arguments: str | Path, code: str = "", **environment: str) -> tuple[int, list[str]]:
    """Exit status and lines of one that ends by itself."""
    program = ["-c", code] if code else ["-m", "inferno_operator"]
    variables = {**own_variables(), "HOME": os.devnull, **environment}
    done = subprocess.run(
        [sys.executable, *program, "admission", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    return done.returncode, done.stderr.splitlines()


def files(folder: Path) -> tuple[str, str]:
    """Options that name a certificate and its key."""
    own = trustme.CA().issue_cert("localhost")
    own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    own.private_key_pem.write_to_path(folder / "tls.key")
    return f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}"


def test_a_certificate_that_is_not_there_is_named() -> None:
    status, lines = started("--tls-cert=tls.crt", "--tls-key=tls.key")

    assert status == 2
    assert lines == [
        "inferno: tls.crt: there is no such file; give a certificate and its key (PEM)"
    ]


def test_without_kopf_it_says_what_to_install(tmp_path: Path) -> None:
    status, lines = started(*files(tmp_path), code=WITHOUT_KOPF)

    assert status == 2
    assert lines == [
        "inferno: inferno admission needs kopf: pip install 'inferno-operator[admission]'"
    ]


def test_without_a_cluster_the_last_line_says_so(tmp_path: Path) -> None:
    status, lines = started(*files(tmp_path))

    assert status == 1
    assert lines[-1] == "inferno: no access to a cluster: set KUBECONFIG, or run in a pod"
