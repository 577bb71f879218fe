"""Addresses of the name nodes of an HDFS, found in the settings of Hadoop's own clients."""

from collections.abc import Mapping
from typing import NamedTuple

from core.model.names import whole_number

_HTTP_PORT = 9870
"""Port of a name node's HTTP server, unless it is configured (dfs.namenode.http-address, Hadoop 3.4.2)."""


class NameNode(NamedTuple):
    """The address of a name node's HTTP server."""

    host: str
    port: int
    tls: bool = False


def name_nodes(authority: str, settings: Mapping[str, str]) -> tuple[NameNode, ...]:
    """Return the name nodes of a host and port, or of a name service, according to the settings of Hadoop."""
    host = authority.rpartition(":")[0] or authority
    tls = settings.get("dfs.http.policy") == "HTTPS_ONLY"
    key = "dfs.namenode.https-address" if tls else "dfs.namenode.http-address"
    nodes = settings.get(f"dfs.ha.namenodes.{authority}", "")
    suffixes = [f".{authority}.{node.strip()}" for node in nodes.split(",") if node.strip()]
    if not suffixes:
        addresses = {settings.get("fs.defaultFS", "").removeprefix("hdfs://").rstrip("/"): ""}
        named = "dfs.namenode.rpc-address"
        addresses |= {value: name.removeprefix(named) for name, value in settings.items() if name.startswith(named)}
        suffixes = [addresses.get(authority, "-")]
    found = []
    for suffix in suffixes:
        there, _, port = settings.get(key + suffix, "").rpartition(":")
        anywhere = there in ("", "0.0.0.0")
        found.append(NameNode(host if anywhere else there, whole_number(port) or _HTTP_PORT, tls))
    return tuple(found)
