"""A name node and data node over a local folder: answers WebHDFS requests as Hadoop 3.4.2 does, without Java."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from pipelines.storage import hdfs_files

SAFE_MODE = (
    "RetriableException",
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException: Name node is in safe mode.",
)
STANDBY = ("StandbyException", "Operation category READ is not supported in state standby")


class FakeHdfs:
    """An HDFS whose files are those of a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault: tuple[str, str] | None = None
        """Exception and message with which every request is answered; with SAFE_MODE, every request that writes."""
        self.data_fault: tuple[str, str] | None = None
        """Exception and message with which every request for a file's content is answered by the data node."""
        self.sent = 0
        """Number of bytes of contents that were sent."""
        self.requests: list[str] = []
        """The operation of each request, with its path."""
        self.before_answer: Callable[[str], object] = lambda path: None
        """Called in the thread of each request, with its path; the answer is sent once it returns."""
        handler = type("Handler", (_Handler,), {"hdfs": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.root = f"hdfs://127.0.0.1:{self.port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def fake_hdfs(folder: Path, patch: pytest.MonkeyPatch, *, conf: Path | None = None) -> Iterator[FakeHdfs]:
    """Serve a folder, and have Headgate find the name node in the files of HADOOP_CONF_DIR."""
    found = FakeHdfs(folder)
    with patch.context() as environ:
        settings = hadoop_conf(conf or folder.parent / f"{folder.name}-conf", found.port, found.port)
        environ.setenv("HADOOP_CONF_DIR", str(settings))
        environ.setenv("HADOOP_USER_NAME", "headgate")
        hdfs_files.hdfs_files.cache_clear()
        yield found
        found.stop()
    hdfs_files.hdfs_files.cache_clear()


def hadoop_conf(folder: Path, port: int, http_port: int) -> Path:
    """Write the settings of a client of the name node at two ports of this machine."""
    folder.mkdir(exist_ok=True)
    values = {"fs.defaultFS": f"hdfs://127.0.0.1:{port}", "dfs.namenode.http-address": f"127.0.0.1:{http_port}"}
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items())
    (folder / "hdfs-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    return folder


class _Refusal(Exception):
    pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hdfs: FakeHdfs

    def log_message(self, *_: object) -> None:
        pass

    def _any(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = unquote(parts.path).removeprefix("/webhdfs/v1")
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        op = query["op"]
        self.hdfs.requests.append(f"{op} {path}")
        self.hdfs.before_answer(path)
        try:
            fault = self.hdfs.fault
            if fault is not None and (fault != SAFE_MODE or self.command != "GET"):
                raise _Refusal(*fault)
            if not query.get("noredirect") and op in ("OPEN", "CREATE") and self.hdfs.data_fault is not None:
                raise _Refusal(*self.hdfs.data_fault)
            if query.get("noredirect"):
                if op == "OPEN":
                    self._open(path, query)
                status, body = (
                    200,
                    json.dumps(
                        {"Location": f"http://127.0.0.1:{self.hdfs.port}{self.path.replace('&noredirect=true', '')}"}
                    ).encode(),
                )
            elif op == "OPEN":
                status, body = 200, self._open(path, query)
                self.hdfs.sent += len(body)
            elif op == "CREATE":
                self._create(path, content, query)
                status, body = 201, b""
            else:
                found = getattr(self, f"_{op.lower()}")(path, query)
                status, body = 200, b"" if found is None else json.dumps(found).encode()
        except _Refusal as error:
            status, body = self._refusal(*error.args)
        except FileNotFoundError:
            status, body = self._refusal("FileNotFoundException", f"File does not exist: {path}")
        except NotADirectoryError:
            status, body = self._refusal("FileNotFoundException", f"File does not exist: {path}")
        except OSError as error:
            status, body = self._refusal("IOException", str(error))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = _any

    def _refusal(self, name: str, message: str) -> tuple[int, bytes]:
        status = 404 if name == "FileNotFoundException" else 403
        return status, json.dumps({"RemoteException": {"exception": name, "message": f"{message}\n\tat x"}}).encode()

    def _local(self, path: str) -> Path:
        return Path(f"{self.hdfs.folder}/{path.lstrip('/')}")

    def _open(self, path: str, query: dict[str, str]) -> bytes:
        place = self._local(path)
        if place.is_dir():
            raise _Refusal("FileNotFoundException", f"Path is not a file: {path}")
        offset, size = int(query.get("offset", 0)), place.stat().st_size
        if offset and offset >= size:
            raise _Refusal("IOException", f"Offset={offset} out of the range [0, {size})")
        return place.read_bytes()[offset:][: int(query.get("length", size))]

    def _create(self, path: str, content: bytes, query: dict[str, str]) -> None:
        place = self._local(path)
        if place.is_dir() or (place.exists() and query.get("overwrite") != "true"):
            raise _Refusal("FileAlreadyExistsException", f"{path} already exists")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(content)

    def _getfilestatus(self, path: str, _: dict[str, str]) -> Any:
        return {"FileStatus": _status(self._local(path), "")}

    def _liststatus(self, path: str, _: dict[str, str]) -> Any:
        place = self._local(path)
        found = (
            [_status(each, each.name) for each in sorted(place.iterdir())] if place.is_dir() else [_status(place, "")]
        )
        return {"FileStatuses": {"FileStatus": found}}

    def _mkdirs(self, path: str, _: dict[str, str]) -> Any:
        try:
            self._local(path).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise _Refusal("ParentNotDirectoryException", f"{path} is not a directory") from None
        return {"boolean": True}

    def _rename(self, path: str, query: dict[str, str]) -> Any:
        place, target = self._local(path), self._local(query["destination"])
        if not place.exists() or not target.parent.is_dir():
            raise _Refusal("FileNotFoundException", f"rename source {path} is not found.")
        if target.exists() and query["renameoptions"] == "NONE":
            raise _Refusal("FileAlreadyExistsException", f"rename destination {target} already exists")
        os.rename(place, target)

    def _delete(self, path: str, query: dict[str, str]) -> Any:
        place = self._local(path)
        if not place.exists():
            return {"boolean": False}
        if place.is_dir() and query["recursive"] == "true":
            shutil.rmtree(place)
        elif place.is_dir() and any(place.iterdir()):
            raise _Refusal("PathIsNotEmptyDirectoryException", f"`{path} is non empty': Directory is not empty")
        elif place.is_dir():
            place.rmdir()
        else:
            place.unlink()
        return {"boolean": True}

    def _getstatus(self, _: str, __: dict[str, str]) -> Any:
        found = shutil.disk_usage(self.hdfs.folder)
        return {"FsStatus": {"used": found.used, "remaining": found.free, "capacity": found.total}}


def _status(place: Path, suffix: str) -> dict[str, Any]:
    about = place.stat()
    return {
        "fileId": about.st_ino,
        "length": 0 if place.is_dir() else about.st_size,
        "modificationTime": about.st_mtime_ns // 1_000_000,
        "pathSuffix": suffix,
        "permission": f"{about.st_mode & 0o777:o}",
        "type": "DIRECTORY" if place.is_dir() else "FILE",
    }
