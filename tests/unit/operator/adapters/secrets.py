"""Secrets as the kubelet mounts them, and what servers speak TLS with."""

import ssl
from pathlib import Path

import trustme


def mount(secret: Path, name: str, signer: trustme.CA, trusted: trustme.CA) -> None:
    """Mount other contents of a Secret: a token, whom to trust, and a certificate with its key.

    Each file is a link through `..data`, which is replaced.

    Parameters
    ----------
    secret
        The folder of the mount.
    name
        The token, and the first part of the host of the certificate.
    signer
        Of the certificate.
    trusted
        Whose certificate is in `ca.crt`.
    """
    version, issued = secret / f"..{name}", signer.issue_cert(f"{name}.example")
    version.mkdir(parents=True)
    trusted.cert_pem.write_to_path(str(version / "ca.crt"))
    issued.private_key_pem.write_to_path(str(version / "tls.key"))
    issued.cert_chain_pems[0].write_to_path(str(version / "tls.crt"))
    (version / "token").write_text(name)
    link = secret / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(secret / "..data")
    for path in version.iterdir():
        if not (secret / path.name).is_symlink():
            (secret / path.name).symlink_to(f"..data/{path.name}")


def server_tls(
    authority: trustme.CA, host: str, asks: ssl.VerifyMode = ssl.CERT_NONE
) -> ssl.SSLContext:
    """TLS of a server: its certificate for a host, and what it asks of those of clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = asks
    authority.issue_cert(host).configure_cert(context)
    authority.configure_trust(context)
    return context
