"""The master of a standalone cluster: whether it accepts connections, and what its web interface reports.

A server whose master is lost, or whose workers are dead, answers every call as before (Spark 4.2.0).
"""

import json
import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from core.model.errors import PoolUnreachable
from core.observed.cluster import ClusterView, cluster_view
from core.project.model import MASTER_SCHEME
from pipelines.spark_connect.call_deadlines import call

ANSWERS_S = 3.0
"""Longest wait, in seconds, for a master to accept a connection, and for its web interface to answer."""

LARGEST = 32 << 20
"""Largest document, in bytes, that is read from a master's web interface; a worker takes 0.5 kB."""


def require_master(master: str, key: str = "master") -> None:
    """Raise PoolUnreachable unless the master at an address `spark://host:port` accepts connections.

    `key` is the key of headgate.yml that has the address.

    Spark itself would try for a minute, and end with a message about a stopped context.
    """
    address_towards(master, key)


def address_towards(master: str, key: str = "master") -> str:
    """Return the address of this machine from which a master is reached, and under which its workers reach a server.

    Raises PoolUnreachable if the master does not accept connections. `key` is the key of headgate.yml that has it.
    """
    host, _, port = master.removeprefix(MASTER_SCHEME).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_S) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        why = f"did not answer within {ANSWERS_S:.0f} s" if isinstance(error, TimeoutError) else _reason(error)
        raise PoolUnreachable(
            f"the master {master} cannot be reached: {why}",
            remedy=f"start it (one on this machine: headgate cluster up), or correct {key} in headgate.yml",
        ) from error


def read_master(page: str, key: str = "master_ui") -> ClusterView:
    """Return what a master reports on its web interface, whose URL is `page`. Raises PoolUnreachable if it does not.

    `key` is the key of headgate.yml that can have the URL.
    """
    remedy = f"correct {key} in headgate.yml; Spark's default is port 8080 of the master"
    try:
        return call(ANSWERS_S, _document, page)
    except (PoolUnreachable, TimeoutError) as error:
        summary = f"the web interface of the master, {page}, gave no answer within {ANSWERS_S:.3g} s"
        raise PoolUnreachable(summary, remedy=remedy) from error
    except ValueError as error:
        raise PoolUnreachable(f"{page} is not the web interface of a standalone master", remedy=remedy) from error
    except (OSError, HTTPException) as error:
        summary = f"the web interface of the master, {page}, cannot be read: {_reason(error)}"
        raise PoolUnreachable(summary, remedy=remedy) from error


def is_this_machine(host: str) -> bool:
    """True if a host is this machine; False if it is another one or cannot be resolved."""
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            bound.bind(address)
    except OSError:
        return False
    return True


def _document(page: str) -> ClusterView:
    # Unlike urllib, this follows no redirects and uses no proxy.
    place = urlsplit(page)
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.netloc, timeout=ANSWERS_S)
    try:
        connection.request("GET", "/json/")
        return cluster_view(json.loads(connection.getresponse().read(LARGEST)))
    finally:
        connection.close()


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text[:1].lower() + text[1:] or type(error).__name__
