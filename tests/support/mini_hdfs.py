"""A real HDFS of one name node and one data node, in a Java process of its own. It starts in six seconds.

The process can run YARN as well, with one node manager, which takes twenty seconds to start.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen
from xml.etree import ElementTree

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
STARTS_S = 180.0
"""Longest time in seconds that a start may take, on a machine with other work."""
YARN_OPTIONS = (
    # Java reserves much more address space than it uses.
    "yarn.nodemanager.vmem-check-enabled=false",
    "yarn.scheduler.minimum-allocation-mb=256",
)
YARN_ADDRESSES = (
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
    "mapreduce.jobhistory.webapp.address",
    "mapreduce.jobhistory.admin.address",
)
"""Addresses that would otherwise have their default ports, so that there could be only one YARN on a machine."""


class MiniHdfs:
    """An HDFS whose files are in `folder`. It can be killed, frozen and started again."""

    def __init__(self, folder: Path, *, yarn: bool = False) -> None:
        self.folder = folder
        self.port, self.http_port = free_port(), free_port()
        self._yarn_port = free_port() if yarn else None
        self.root = f"hdfs://127.0.0.1:{self.port}"
        self.conf = hadoop_conf(folder / "conf", self.port, self.http_port)
        # It is killed in the end, and leaves its temporary files.
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._jars = ":".join(f"{jars_of(artifact)}/*" for artifact in ARTIFACTS)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with the files that it had before, and wait until it accepts writes."""
        words = ["-nnport", str(self.port), "-nnhttpport", str(self.http_port)]
        words += [] if (self.folder / "target").exists() else ["-format"]
        settings = self.folder / "cluster.xml"
        settings.unlink(missing_ok=True)
        if self._yarn_port is None:
            words.append("-nomr")
        else:
            words += ["-rmport", str(self._yarn_port), "-writeConfig", str(settings)]
            addresses = [f"{name}=127.0.0.1:{free_port()}" for name in YARN_ADDRESSES]
            words += [word for option in (*YARN_OPTIONS, *addresses) for word in ("-D", option)]
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
        if self._yarn_port is not None:
            found = ElementTree.parse(settings)
            for each in list(found.getroot()):
                # Others name classes of Hadoop's tests.
                if not each.findtext("name", "").startswith(("yarn.", "fs.defaultFS")):
                    found.getroot().remove(each)
            # A client reads both files, and what it finds in the second one has priority over its defaults.
            for name in ("core-site.xml", "yarn-site.xml"):
                found.write(self.conf / name)

    def kill(self) -> None:
        """Kill it, with all processes that YARN has started on it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for pid in self.containers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def containers(self, program: str = "") -> list[int]:
        """Return the ids of the Java processes that YARN has started, of those whose command has the word `program`."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (place / "cmdline").read_bytes().split(b"\0")
                inside = (place / "cwd").resolve().is_relative_to(self.folder / "target")
                if inside and words[0].endswith(b"java") and any(program.encode() in word for word in words):
                    found.append(int(place.name))
        return found

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
        opened = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
        return [
            java_program(),
            "-Xmx400m",
            f"-Djava.io.tmpdir={self._temporary}",
            *opened,
            "-cp",
            f"{self.conf}:{self._jars}",
            main,
            *words,
        ]

    def _answers(self) -> bool:
        # It may start in safe mode, in which it refuses writes, and without its data node, which has the space.
        user = os.environ["HADOOP_USER_NAME"]
        address = f"http://127.0.0.1:{self.http_port}/webhdfs/v1/.starts?user.name={user}&op="
        try:
            with (
                urlopen(Request(f"{address}MKDIRS", method="PUT"), timeout=2),
                urlopen(f"{address}GETSTATUS", timeout=2) as answer,
            ):
                has_data_node = b'"capacity":0' not in answer.read()
            return has_data_node and (self._yarn_port is None or _is_written(self.folder / "cluster.xml"))
        except (HTTPError, URLError, OSError):
            return False


def _is_written(settings: Path) -> bool:
    return settings.exists() and settings.read_text().rstrip().endswith("</configuration>")


@contextmanager
def mini_hdfs(folder: Path, patch: pytest.MonkeyPatch, *, yarn: bool = False) -> Iterator[MiniHdfs]:
    """Run an HDFS, and have Headgate and Spark find it in the files of HADOOP_CONF_DIR."""
    found = MiniHdfs(folder, yarn=yarn)
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
