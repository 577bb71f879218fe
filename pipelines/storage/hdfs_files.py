"""Files in HDFS, through the REST API that each name node offers (WebHDFS), with a deadline for every call.

The addresses of the name nodes and the user are found as the clients of Hadoop find them. A rename is atomic and, with
OVERWRITE, replaces what `rename(2)` would replace: a file, or an empty folder (Hadoop 3.4.2).
"""

import errno
import getpass
import io
import json
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

from pipelines.storage import remote_files
from pipelines.storage.hadoop_settings import hadoop_settings
from pipelines.storage.hdfs_addresses import NameNode, name_nodes
from pipelines.storage.remote_files import RemoteEntry, RemoteFiles, RemoteStatus

CALL_S = 10.0
"""Deadline in seconds for each answer of a name node or data node."""

CONNECT_S = 3.0

SILENT_S = 5.0
"""Seconds for which calls fail at once after no name node has answered, so that a round over many folders ends."""

IDLE_CONNECTIONS = 8
"""Most connections to a name node that are kept for later requests. Each request that writes opens another one."""

_ERRORS = {
    "FileNotFoundException": errno.ENOENT,
    "AccessControlException": errno.EACCES,
    "SecurityException": errno.EACCES,
    "AuthenticationException": errno.EACCES,
    "FileAlreadyExistsException": errno.EEXIST,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "NSQuotaExceededException": errno.EDQUOT,
    "DSQuotaExceededException": errno.EDQUOT,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "SafeModeException": errno.EAGAIN,
}
_STANDBY = "StandbyException"


class HdfsFiles(RemoteFiles):
    """One HDFS, with paths such as `hdfs://namenode:8020/folder`. Thread-safe.

    HDFS never uses the id of a deleted file again.
    """

    def __init__(self, root: str, name_nodes: Sequence[NameNode], user: str) -> None:
        """Use the HDFS `root`, such as `hdfs://namenode:8020`, as `user`. A standby name node is passed over."""
        self._root = root
        self._name_nodes = deque(name_nodes)
        self._user = user
        self._idle: dict[NameNode, deque[HTTPConnection]] = {node: deque() for node in name_nodes}
        self._silent: tuple[float, int, str] | None = None
        """Until when calls fail at once, and with which error."""

    def stat(self, path: str) -> RemoteStatus:
        return _status(self._json("GET", "GETFILESTATUS", path)["FileStatus"])

    def entries(self, folder: str) -> Sequence[RemoteEntry]:
        found = self._json("GET", "LISTSTATUS", folder)["FileStatuses"]["FileStatus"]
        if len(found) == 1 and not found[0]["pathSuffix"]:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", folder)
        return [RemoteEntry(each["pathSuffix"], f"{folder}/{each['pathSuffix']}", _status(each)) for each in found]

    def open(self, path: str) -> BinaryIO:
        # Most files are small, and need no question for their size.
        content = self.read_part(path, 0, remote_files.WHOLE_BYTES + 1)
        return io.BytesIO(content) if len(content) <= remote_files.WHOLE_BYTES else super().open(path)

    def read(self, path: str) -> bytes:
        with self._data_node("GET", "OPEN", path) as answer:
            return answer.read()

    def read_part(self, path: str, offset: int, length: int) -> bytes:
        with self._data_node("GET", "OPEN", path, offset=offset, length=length) as answer:
            return answer.read()

    def write(self, path: str, content: bytes) -> None:
        self._create(path, content)

    def replace(self, path: str, content: bytes) -> None:
        folder, name = os.path.split(path)
        temporary = f"{folder}/.{name}.{secrets.token_hex(4)}"
        try:
            self._create(temporary, content)
            self._rename(temporary, path, "OVERWRITE")
        except OSError:
            self.remove_tree(temporary)
            raise

    def make_folders(self, path: str) -> None:
        self._call("PUT", "MKDIRS", path)

    def rename(self, path: str, target: str) -> None:
        self._rename(path, target, "OVERWRITE")

    def move(self, path: str, target: str) -> None:
        self._rename(path, target, "OVERWRITE")

    def link_or_copy(self, path: str, copy: str) -> None:
        # HDFS has no hard links, and a copy that is interrupted must not look complete.
        size = self.stat(path).st_size
        if self.exists(copy):
            return
        temporary = f"{os.path.dirname(copy)}/.{secrets.token_hex(8)}"
        try:
            if size:
                with self._data_node("GET", "OPEN", path) as content:
                    self._create(temporary, content, size)
            else:
                self._create(temporary, b"")
            self._rename(temporary, copy, "NONE")
        except FileExistsError:
            self.remove_tree(temporary)
        except OSError:
            self.remove_tree(temporary)
            raise

    def unlink(self, path: str) -> None:
        if not self._json("DELETE", "DELETE", path, recursive="false")["boolean"]:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)

    def rmdir(self, path: str) -> None:
        if not stat.S_ISDIR(self.stat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        self._call("DELETE", "DELETE", path, recursive="false")

    def remove_tree(self, path: str) -> None:
        with suppress(OSError):
            self._call("DELETE", "DELETE", path, recursive="true")

    def space(self, folder: str) -> tuple[int | None, int | None]:
        found = self._json("GET", "GETSTATUS", self._root)["FsStatus"]
        return int(found["remaining"]), int(found["capacity"])

    def _rename(self, path: str, target: str, options: str) -> None:
        self._call("PUT", "RENAME", path, destination=target.removeprefix(self._root), renameoptions=options)

    def _create(self, path: str, content: bytes | HTTPResponse, size: int | None = None) -> None:
        length = len(content) if isinstance(content, bytes) else size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
        with self._data_node("PUT", "CREATE", path, body=content, headers=headers, overwrite="true") as answer:
            answer.read()

    @contextmanager
    def _data_node(
        self,
        method: str,
        op: str,
        path: str,
        body: bytes | HTTPResponse | None = None,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Iterator[HTTPResponse]:
        """Send a request with a content to the data node that the name node names, and yield its answer."""
        where = urlsplit(self._json(method, op, path, noredirect="true", **query)["Location"])
        node = NameNode(where.hostname or "", where.port or 0, where.scheme == "https")
        connection = _connection(node)
        try:
            # The name node leaves letters beyond ASCII as they are (3.4.2).
            target = quote(f"{where.path}?{where.query}", safe="%/?=&:,+@!$'()*;~[]")
            connection.request(method, target, body, dict(headers or {}))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _error(answer.status, answer.read(), path)
            yield answer
        except (HTTPException, TimeoutError, ConnectionError) as error:
            raise _unanswered(f"the data node {node.host}:{node.port}", error) from error
        finally:
            connection.close()

    def _json(self, method: str, op: str, path: str, **query: object) -> Any:
        return json.loads(self._call(method, op, path, **query))

    def _call(self, method: str, op: str, path: str, **query: object) -> bytes:
        """Return the answer of the active name node."""
        if (silent := self._silent) is not None and time.monotonic() < silent[0]:
            raise OSError(silent[1], silent[2])
        place = quote(path.removeprefix(self._root) or "/", safe="/", errors="surrogateescape")
        target = f"/webhdfs/v1{place}?{urlencode({'op': op, 'user.name': self._user, **query})}"
        unanswered: OSError | None = None
        for _ in range(len(self._name_nodes)):
            node = self._name_nodes[0]
            try:
                status, content = self._answer(node, method, target)
            except (HTTPException, OSError) as error:
                unanswered = _unanswered(f"the name node {node.host}:{node.port}", error)
            else:
                if status < 400:
                    self._silent = None
                    return content
                if _exception(content)[0] != _STANDBY:
                    raise _error(status, content, path)
                unanswered = OSError(errno.EAGAIN, f"the name node {node.host}:{node.port} is on standby")
            if self._name_nodes[0] == node:
                self._name_nodes.rotate(-1)
        assert unanswered is not None
        self._silent = (time.monotonic() + SILENT_S, unanswered.errno or errno.EIO, str(unanswered.strerror))
        raise unanswered

    def _answer(self, node: NameNode, method: str, target: str) -> tuple[int, bytes]:
        # Only a request that changes nothing is sent over a connection that the server may just have closed.
        idle = self._idle[node]
        if method == "GET":
            with suppress(HTTPException, ConnectionError, IndexError):
                return self._exchange(node, idle.pop(), method, target)
        return self._exchange(node, _connection(node), method, target)

    def _exchange(self, node: NameNode, connection: HTTPConnection, method: str, target: str) -> tuple[int, bytes]:
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            found = answer.status, answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close or len(self._idle[node]) >= IDLE_CONNECTIONS:
            connection.close()
        else:
            self._idle[node].append(connection)
        return found


def _connection(node: NameNode) -> HTTPConnection:
    kind = HTTPSConnection if node.tls else HTTPConnection
    connection = kind(node.host, node.port, timeout=CONNECT_S)
    connection.connect()
    connection.sock.settimeout(CALL_S)
    return connection


def _status(found: Mapping[str, Any]) -> RemoteStatus:
    kind = stat.S_IFDIR if found["type"] == "DIRECTORY" else stat.S_IFREG
    mode = kind | int(found["permission"], 8)
    return RemoteStatus(mode, int(found["fileId"]), int(found["length"]), int(found["modificationTime"]) * 1_000_000)


def _exception(content: bytes) -> tuple[str, str]:
    """Return the name and the first line of the exception in an answer; empty if it has none."""
    with suppress(ValueError, KeyError, TypeError):
        found = json.loads(content)["RemoteException"]
        name, message = str(found["exception"]), str(found["message"]).partition("\n")[0]
        # A name node that starts wraps the exception in one that asks clients to try again (3.4.2).
        return ("SafeModeException" if "is in safe mode" in message else name), message
    return "", ""


def _error(status: int, content: bytes, path: str) -> OSError:
    name, message = _exception(content)
    if name == "SafeModeException":
        return OSError(errno.EAGAIN, "the name node is in safe mode, in which it changes nothing", path)
    if status == 401:
        return OSError(errno.EACCES, "the name node requires Kerberos, which Headgate does not support", path)
    return OSError(_ERRORS.get(name, errno.EIO), message or f"the answer has status {status}", path)


def _unanswered(who: str, error: Exception) -> OSError:
    if isinstance(error, TimeoutError):
        return OSError(errno.ETIMEDOUT, f"{who} does not answer in time")
    why = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    return OSError(errno.EHOSTUNREACH, f"{who} does not answer: {why}")


@lru_cache(maxsize=64)
def hdfs_files(root: str) -> HdfsFiles:
    """Return the HDFS of a root such as `hdfs://namenode:8020` or, with a name service, `hdfs://cluster`.

    Its addresses are those in the files of HADOOP_CONF_DIR, or port 9870 of the host. The user is HADOOP_USER_NAME, or
    the user of this process.
    """
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return HdfsFiles(root, name_nodes(root.partition("://")[2], hadoop_settings()), user)
