"""nginx with the configuration of `contrib/nginx`, in front of an API. Needs nginx to be installed."""

import os
import shutil
import ssl
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support.fatura_processes import free_port, is_open
from tests.support.postgres_processes import until
from tests.tidy.sources import ROOT

PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
BURST = 50
"""Number of requests that a client may send at once. Afterwards, nginx accepts two requests per second."""
_CONF = ROOT / "contrib/nginx/fatura.conf"
_MAIN = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    include {folder}/fatura.conf;
}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    port: int
    plain_port: int
    trust: ssl.SSLContext


@contextmanager
def nginx(api_port: int, folder: Path) -> Generator[Proxy]:
    """Run nginx in front of the API on `api_port` during the block.

    nginx listens on free ports instead of those in `contrib`. Its rate limit is lower, so that tests exceed it quickly.
    """
    assert PROGRAM, "check PROGRAM before"
    port, plain_port = free_port(), free_port()
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    for path, blob in (("fullchain.pem", issued.cert_chain_pems[0]), ("privkey.pem", issued.private_key_pem)):
        blob.write_to_path(folder / path)
    conf = _CONF.read_text()
    for written, here in (
        ("listen 80 ", f"listen 127.0.0.1:{plain_port} "),
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("listen [::]:80 default_server;", ""),
        ("listen [::]:443 ssl default_server;", ""),
        ("server 127.0.0.1:8000;", f"server 127.0.0.1:{api_port};"),
        ("/etc/nginx/tls/", f"{folder}/"),
        ("rate=200r/s", "rate=2r/s"),
        ("burst=400", f"burst={BURST}"),
    ):
        assert written in conf, written
        conf = conf.replace(written, here)
    (folder / "fatura.conf").write_text(conf)
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder))
    command = [PROGRAM, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    with (folder / "nginx.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    try:
        until(lambda: is_open(port), seconds=30)
        yield Proxy(port, plain_port, trust)
    finally:
        process.terminate()
        process.wait(30)
