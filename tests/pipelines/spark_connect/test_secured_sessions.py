"""Sessions on a real server behind TLS: certificates that are trusted or not, and tokens that are renewed or wrong."""

import socket
import ssl
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from core.model.errors import PoolUnreachable
from core.model.secret_references import SecretKind, SecretReference
from pipelines.local_pool.connect_server import LocalPool
from pipelines.spark_connect.error_translation import TokenRefused
from pipelines.spark_connect.pool_token import PoolToken
from pipelines.spark_connect.session import Session, Tls

pytestmark = pytest.mark.spark


def certificate(folder: Path, host: str) -> Path:
    """Write a certificate for a host and its key into one file."""
    made = folder / f"{host}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", f"/CN={host}", "-addext", f"subjectAltName={'IP' if host[0].isdigit() else 'DNS'}:{host}"]
    subprocess.run([*command, "-keyout", str(folder / "key"), "-out", str(folder / "cert")], check=True)
    made.write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return made


class Encrypted:
    """Accepts connections with TLS, and passes them on to a server that has none."""

    def __init__(self, server: str, certificate: Path) -> None:
        self._server = (urlsplit(server).hostname or "", urlsplit(server).port or 0)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2"])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"sc://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closing a socket alone does not wake the thread that waits for connections.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        with suppress(OSError), socket.create_connection(self._server) as plain:
            client = self._context.wrap_socket(raw, server_side=True)
            threading.Thread(target=copied, args=(plain, client), daemon=True).start()
            copied(client, plain)


def copied(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def encrypted(pool: LocalPool, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of the run's server behind TLS, and the path of the certificate."""
    made = certificate(tmp_path, "127.0.0.1")
    front = Encrypted(pool.url, made)
    yield front.url, str(made)
    front.close()


def attached(url: str, token: PoolToken | str, tls: Tls | None) -> Session:
    session = Session(url, token, str(uuid.uuid4()), tls=tls)
    try:
        session.call(20, session.attach)
    except BaseException:
        session.close()
        raise
    return session


def test_a_renewed_token_is_used_by_the_next_call_and_a_wrong_one_is_named_without_its_value(
    pool: LocalPool, encrypted: tuple[str, str], tmp_path: Path
) -> None:
    url, trusted = encrypted
    file = tmp_path / "token"
    file.write_text(pool.token)
    session = attached(url, PoolToken(SecretReference(SecretKind.FILE, str(file))), Tls(trusted))
    try:
        reader = session.reader()
        session.call(20, session.run_test_statement)
        file.write_text("wr0ng")
        for each in (session, reader):
            with pytest.raises(TokenRefused, match=rf"^the pool refuses the token of \$\{{file:{file}\}}$") as raised:
                each.call(20, each.run_test_statement)
            assert "wr0ng" not in raised.value.sentence
        file.write_text(f"{pool.token}\n")
        for each in (session, reader):
            each.call(20, each.run_test_statement)
        reader.close()
    finally:
        session.call(20, session.release)


@pytest.mark.parametrize(
    ("which", "why"),
    [
        ("unknown", "the certificate of the pool is not trusted; set ca: in headgate.yml"),
        ("plain", "the pool does not encrypt connections; set tls: false"),
        ("another host", "the certificate of the pool is for another host; correct the host in url"),
        ("no file", "cannot be read: No such file or directory; correct ca in headgate.yml"),
    ],
)
def test_a_failed_handshake_is_named(
    pool: LocalPool, encrypted: tuple[str, str], tmp_path: Path, which: str, why: str
) -> None:
    url, tls = encrypted[0], Tls(encrypted[1])
    front = None
    if which == "unknown":
        tls = Tls()
    elif which == "plain":
        url = pool.url
    elif which == "no file":
        tls = Tls(str(tmp_path / "none.pem"))
    else:
        other = certificate(tmp_path, "spark.example")
        front = Encrypted(pool.url, other)
        url, tls = front.url, Tls(str(other))
    try:
        with pytest.raises(PoolUnreachable) as raised:
            attached(url, pool.token, tls)
    finally:
        if front is not None:
            front.close()
    assert why in raised.value.sentence, repr(raised.value.__cause__)
