"""Certificates, keys and kubeconfigs of one control plane."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trustme
import yaml


@dataclass(frozen=True)
class Credentials:
    """Files in one folder that the programs read, and the administrator's certificate.

    Attributes
    ----------
    certificate_authority
        Certificate that everything here is signed with.
    server_certificate, server_key
        Of the API server (and controller manager), for the loopback address.
    client_certificate, client_key
        Of an administrator: its organization `system:masters` is the group that may do everything.
    service_account_key
        Signs the tokens of service accounts, and tells that they are genuine.
    """

    certificate_authority: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path
    service_account_key: Path

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Make new ones in `folder`."""
        folder.mkdir(mode=0o700)
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1", "localhost")
        # An empty list of alternative names is refused, so there is one that nobody looks at.
        admin = authority.issue_cert(
            "admin", common_name="admin", organization_name="system:masters"
        )
        signer = authority.issue_cert(common_name="service-accounts")
        return cls(
            certificate_authority=_write(folder / "ca.crt", authority.cert_pem),
            server_certificate=_write(folder / "server.crt", server.cert_chain_pems[0]),
            server_key=_write(folder / "server.key", server.private_key_pem),
            client_certificate=_write(folder / "admin.crt", admin.cert_chain_pems[0]),
            client_key=_write(folder / "admin.key", admin.private_key_pem),
            service_account_key=_write(folder / "service-account.key", signer.private_key_pem),
        )

    def write_admin_kubeconfig(self, path: Path, url: str) -> Path:
        """Write a kubeconfig with the administrator's certificate."""
        user = {
            "client-certificate-data": _base64(self.client_certificate),
            "client-key-data": _base64(self.client_key),
        }
        return self._write_kubeconfig(path, url, user)

    def write_token_kubeconfig(self, path: Path, url: str, token: str) -> Path:
        return self._write_kubeconfig(path, url, {"token": token})

    def _write_kubeconfig(self, path: Path, url: str, user: dict[str, str]) -> Path:
        cluster = {
            "server": url,
            "certificate-authority-data": _base64(self.certificate_authority),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "inferno", "cluster": cluster}],
            "users": [{"name": "inferno", "user": user}],
            "contexts": [{"name": "inferno", "context": {"cluster": "inferno", "user": "inferno"}}],
            "current-context": "inferno",
        }
        path.write_text(yaml.safe_dump(document))
        return path


def _write(path: Path, pem: trustme.Blob) -> Path:
    pem.write_to_path(path)
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
