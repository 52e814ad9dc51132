"""With `sslmode=verify-full`, Fatura refuses a PostgreSQL whose certificate it does not trust, and says why."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from fatura.store.db import DatabaseUnavailableError, connect
from fatura.store.migrations.runner import MigrationError, pending

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (STRANGER.issue_cert("localhost"), "unable to get local issuer certificate|self.signed certificate"),
        (AUTHORITY.issue_cert("other.internal"), "Hostname mismatch"),
    ],
    ids=["unknown authority", "other name"],
)
async def test_an_untrusted_server_is_refused(
    certificate: trustme.LeafCert, reason: str, tmp_path: Path
) -> None:
    """[D-47]"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept PostgreSQL's request for TLS, and begin the handshake."""
        await reader.readexactly(8)
        writer.write(b"S")
        with suppress(OSError):
            await writer.start_tls(context)
        writer.close()

    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"postgresql://fatura@localhost:{port}/fatura?sslmode=verify-full&sslrootcert={tmp_path}/ca.crt"
        with pytest.raises(DatabaseUnavailableError, match=reason):
            await connect(url, max_connections=2)
        with pytest.raises(MigrationError, match=reason):
            await pending(url)


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert"])
async def test_a_missing_certificate_file_is_named(name: str, tmp_path: Path) -> None:
    """[D-47]"""
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    files = f"sslrootcert={tmp_path}/ca.crt&" * (name != "sslrootcert") + f"{name}={tmp_path}/absent.crt"
    url = f"postgresql://fatura@localhost:9/fatura?sslmode=verify-full&{files}"
    reason = f"the file {tmp_path}/absent.crt of {name} cannot be read: No such file"
    with pytest.raises(DatabaseUnavailableError, match=reason):
        await connect(url, max_connections=2)
    with pytest.raises(MigrationError, match=reason):
        await pending(url)
