"""Whatever is sent: an answer, and not that of a server that broke."""

import random
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method

from tests.cli.program import SMALL
from tests.controlplane.waiting import PATIENCE_S
from tests.rest.serving import Served, connected, serving

REQUESTS = 500

OUR_OWN_WAY = [
    positive_data_acceptance,  # 2.0 is an integer to JSON schema; on the wire it is none
    unsupported_method,  # 404, as the original answers
]


def resident_bytes(server: Served) -> int:
    """Memory of a server and its processes; what they share counts for each."""
    processes = (server.pid, *server.workers())
    pages = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in processes]
    return sum(map(int, pages)) * 4096


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("mode", [[], ["--stateful"]], ids=["stateless", "stateful"])
def test_requests_made_from_the_description_are_answered_as_it_says(
    tmp_path: Path, mode: list[str]
) -> None:
    with serving(tmp_path, *mode) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        found = list(schema.get_all_operations())
        operations = [result.ok() for result in found if isinstance(result, Ok)]
        assert len(operations) == len(found) > 0
        for operation in operations:

            @settings(
                max_examples=-(-REQUESTS // len(operations)),
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=[*HealthCheck],
            )
            @given(case=operation.as_strategy())
            def answered(case: schemathesis.Case[Any]) -> None:
                case.call_and_validate(excluded_checks=OUR_OWN_WAY, timeout=PATIENCE_S)

            answered()

        assert httpx.get(f"{server.url}/readyz", timeout=PATIENCE_S).status_code == 200
    assert "Traceback" not in server.log.read_text()


def test_random_bodies_and_random_bytes_break_nothing(tmp_path: Path) -> None:
    source = random.Random(1)  # noqa: S311 - the same bytes each time
    with serving(tmp_path, "--stateful") as server, server.client() as client:
        paths = [
            path
            for path, operations in client.get("/openapi.json").json()["paths"].items()
            if "post" in operations
        ]
        statuses, sizes = set(), []
        for _ in range(2):
            for _ in range(REQUESTS // 2):
                body = damaged(SMALL.read_bytes(), source)
                statuses.add(client.post(source.choice(paths), content=body).status_code)
            for _ in range(25):
                send_bytes(server, source.randbytes(source.randrange(1, 2000)))
            sizes.append(resident_bytes(server))

        assert statuses <= {200, 400, 404}
        assert client.get("/readyz").status_code == 200
    assert sizes[1] < 1.05 * sizes[0]
    assert "Traceback" not in server.log.read_text()


def damaged(body: bytes, source: random.Random) -> bytes:
    """A body with some bytes replaced, or mere noise."""
    if source.random() < 0.3:
        return source.randbytes(source.randrange(500))
    changed = bytearray(body)
    for _ in range(source.randrange(1, 5)):
        changed[source.randrange(len(changed))] = source.choice(b'0123456789{}[]",:e-.\x00\xff')
    return bytes(changed)


def send_bytes(server: Served, noise: bytes) -> None:
    """Send what is no HTTP, and hang up."""
    with connected(server) as connection:
        connection.sendall(noise)
