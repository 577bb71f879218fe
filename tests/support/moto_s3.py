"""An S3 with one bucket in a process of its own (moto). It can be killed, frozen, and told to refuse all keys.

Its program is installed once into the user's cache (140 MB), because only drills and benchmarks need it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from fake_s3 import KEY, SECRET, conf_of
from pool_jars import CACHE
from pyarrow import fs

from pipelines.local_pool.detached_servers import free_port
from pipelines.storage.hadoop_settings import use_settings_of_pools
from pipelines.storage.object_files import object_files

PACKAGES = ("moto==5.2.5", "flask==3.*", "flask-cors==6.*", "py-partiql-parser", "PyYAML")
STARTS_S = 60.0


class MotoS3:
    """The bucket `lake`, whose contents are kept here as well, because the process has them in memory alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.root = "s3a://lake"
        self.contents: dict[str, bytes] = {}
        """What was put, by key."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def conf(self) -> tuple[tuple[str, str], ...]:
        """The settings of a pool that reads the bucket."""
        return conf_of(self.port)

    def start(self) -> None:
        """Start it with what was put before."""
        with open(self._folder / "moto.log", "ab") as output:
            self._process = subprocess.Popen(
                [_program(), "-H", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        until = time.monotonic() + STARTS_S
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, (self._folder / "moto.log").read_text()
            time.sleep(0.1)
        self._client().create_dir("lake")
        for key, content in self.contents.items():
            self.put(key, content)

    def put(self, key: str, content: bytes) -> None:
        self.contents[key] = content
        with self._client().open_output_stream(f"lake/{key}") as file:
            file.write(content)

    def refuse(self, on: bool) -> None:
        """Refuse every key, or accept every one again."""
        body = b"0" if on else b"Infinity"
        with urlopen(Request(f"http://127.0.0.1:{self.port}/moto-api/reset-auth", body, method="POST")) as answer:
            answer.read()

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

    def _client(self) -> fs.S3FileSystem:
        return fs.S3FileSystem(
            access_key=os.environ[KEY],
            secret_key=os.environ[SECRET],
            region="eu-west-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )

    def _answers(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/moto-api/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _program() -> str:
    folder = CACHE / "moto-5.2.5"
    program = folder / "bin" / "moto_server"
    if not (folder / "installed").exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            words = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES]
            subprocess.run(words, check=True, capture_output=True)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"moto cannot be installed: {error.stderr.decode()[-200:]}")
        (folder / "installed").touch()
    return str(program)


@contextmanager
def moto_s3(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[MotoS3]:
    """Run an S3, and have Headgate find it in the settings of a pool and its keys in the environment."""
    found = MotoS3(folder)
    with patch.context() as environ:
        environ.setenv(KEY, "the-key")
        environ.setenv(SECRET, "the-secret")
        use_settings_of_pools([found.conf])
        object_files.cache_clear()
        found.start()
        try:
            yield found
        finally:
            found.kill()
            use_settings_of_pools(())
            object_files.cache_clear()
