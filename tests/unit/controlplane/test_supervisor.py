"""The process that owns what a control plane starts."""

import json
import subprocess
import sys

from tests.controlplane.waiting import PATIENCE_S


def test_it_ends_in_silence_if_its_owner_is_gone_when_it_answers() -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.controlplane.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    supervisor.stdout.readline()

    supervisor.stdout.close()
    absent = {"name": "x", "command": ["/nowhere"], "environment": None}
    supervisor.stdin.write(json.dumps({"method": "start", "arguments": absent}) + "\n")
    supervisor.stdin.flush()

    _, said = supervisor.communicate(timeout=PATIENCE_S)
    assert (supervisor.returncode, said) == (0, "")
