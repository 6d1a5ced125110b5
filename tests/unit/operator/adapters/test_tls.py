"""Certificates and keys that are replaced while they are read."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from inferno_operator.adapters.credentials import load_pair
from tests.unit.operator.adapters.secrets import mount


class Interrupted(ssl.SSLContext):
    """Reads a certificate, lets something happen once, and reads the key."""

    meanwhile: Callable[[], None] | None = None

    def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> None:  # noqa: ANN401 - as the base class
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            certfile = certfile.resolve()  # what is open stays
            meanwhile()
        super().load_cert_chain(certfile, keyfile, password)


def interrupted(tmp_path: Path, meanwhile: Callable[[], None]) -> tuple[Interrupted, Path, Path]:
    context = Interrupted(ssl.PROTOCOL_TLS_CLIENT)
    context.meanwhile = meanwhile
    return context, tmp_path / "tls.crt", tmp_path / "tls.key"


def test_a_pair_that_is_replaced_between_the_reads_is_read_again(tmp_path: Path) -> None:
    authority = trustme.CA()
    mount(tmp_path, "before", authority, authority)
    swaps: list[str] = []

    def swap() -> None:
        mount(tmp_path, "after", authority, authority)
        swaps.append("after")

    load_pair(*interrupted(tmp_path, swap))

    assert swaps == ["after"]


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    mount(tmp_path, "first", authority, authority)
    context, certificate, _ = interrupted(tmp_path, lambda: None)
    other = tmp_path / "other.key"
    authority.issue_cert("other.example").private_key_pem.write_to_path(str(other))

    with pytest.raises(ssl.SSLError, match="key values mismatch"):
        load_pair(context, certificate, other)
