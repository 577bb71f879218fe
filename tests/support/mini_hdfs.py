"""A real HDFS of one name node and one data node, in a Java process of its own. It starts in six seconds."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
from fake_hdfs import hadoop_conf
from kafka_broker import jars_of

from pipelines.demo.servers import Artifact, java_program
from pipelines.local_pool.detached_servers import free_port
from pipelines.storage import hdfs_files

ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.hadoop", "hadoop-minicluster", "3.4.2"),
    ("junit", "junit", "4.13.2"),
)
STARTS_S = 60.0


class MiniHdfs:
    """An HDFS whose files are in `folder`. It can be killed, frozen and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.http_port = free_port(), free_port()
        self.root = f"hdfs://127.0.0.1:{self.port}"
        self.conf = hadoop_conf(folder / "conf", self.port, self.http_port)
        self._jars = ":".join(f"{jars_of(artifact)}/*" for artifact in ARTIFACTS)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with the files that it had before, and wait until it accepts writes."""
        words = ["-nomr", "-nnport", str(self.port), "-nnhttpport", str(self.http_port)]
        words += [] if (self.folder / "target").exists() else ["-format"]
        with open(self.folder / "hdfs.log", "ab") as output:
            self._process = subprocess.Popen(
                self._command("org.apache.hadoop.mapreduce.MiniHadoopClusterManager", *words),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        until = time.monotonic() + STARTS_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, (self.folder / "hdfs.log").read_text()
            time.sleep(0.2)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def safe_mode(self, on: bool) -> None:
        """Have the name node refuse all writes, or accept them again."""
        words = ["-fs", self.root, "-safemode", "enter" if on else "leave"]
        subprocess.run(self._command("org.apache.hadoop.hdfs.tools.DFSAdmin", *words), check=True, capture_output=True)

    def _command(self, main: str, *words: str) -> list[str]:
        return [java_program(), "-Xmx400m", "-cp", f"{self.conf}:{self._jars}", main, *words]

    def _answers(self) -> bool:
        # It may start in safe mode, in which it refuses writes, and without its data node, which has the space.
        user = os.environ["HADOOP_USER_NAME"]
        address = f"http://127.0.0.1:{self.http_port}/webhdfs/v1/.starts?user.name={user}&op="
        try:
            with (
                urlopen(Request(f"{address}MKDIRS", method="PUT"), timeout=2),
                urlopen(f"{address}GETSTATUS", timeout=2) as answer,
            ):
                return b'"capacity":0' not in answer.read()
        except (HTTPError, URLError, OSError):
            return False


@contextmanager
def mini_hdfs(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[MiniHdfs]:
    """Run an HDFS, and have Headgate and Spark find it in the files of HADOOP_CONF_DIR."""
    found = MiniHdfs(folder)
    with patch.context() as environ:
        environ.setenv("HADOOP_CONF_DIR", str(found.conf))
        environ.setenv("HADOOP_USER_NAME", os.environ.get("USER") or "root")
        hdfs_files.hdfs_files.cache_clear()
        found.start()
        try:
            yield found
        finally:
            found.kill()
    hdfs_files.hdfs_files.cache_clear()
