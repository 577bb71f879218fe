"""Which Java would run a local pool, and whether it can: Spark 4 needs 17 or newer with `jdk.incubator.vector`."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

OLDEST_JAVA = 17
"""Oldest Java that Spark 4.2 runs on (Spark 4.2 documentation, "Downloading")."""

_MODULE = "jdk.incubator.vector"
ANSWERS_S = 8.0
"""Java says its version within 0.2 s on an idle machine, within 2 s on one that is busy."""

_HANGS = "run java -version by hand: a wrapper that waits for input or a hanging disk can block it"
_INSTALL = (
    "install a JDK 17 or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
)


@dataclass(frozen=True, slots=True)
class JavaCheck:
    """A verdict on the Java of an environment; `remedy` is empty exactly when it can run Spark."""

    path: str
    """Absolute path of the `java` program, empty when none was found."""
    home: str
    """Folder to use as JAVA_HOME, empty when none was found."""
    version: int
    """Feature release (17, 21), 0 when unknown."""
    summary: str
    remedy: str = ""

    @property
    def works(self) -> bool:
        """Return whether a pool can be started with it."""
        return not self.remedy


def find_java(environ: Mapping[str, str] | None = None) -> JavaCheck:
    """Judge the Java that JAVA_HOME names, else the one on PATH; costs two short processes."""
    environ = os.environ if environ is None else environ
    path = _program(environ)
    if path is None:
        where = f"JAVA_HOME={environ['JAVA_HOME']} has no bin/java" if environ.get("JAVA_HOME") else "no java on PATH"
        return JavaCheck("", "", 0, f"no Java found: {where}", f"{_INSTALL}, or set JAVA_HOME to one")
    real = os.path.realpath(path)
    home = os.path.dirname(os.path.dirname(real))
    try:
        said = _output([path, "-version"], environ)
        modules = _output([path, "--list-modules"], environ)
    except subprocess.TimeoutExpired:
        return JavaCheck(path, home, 0, f"{path} did not answer within {ANSWERS_S:.0f} s", f"{_HANGS}, or {_INSTALL}")
    version = _version(said)
    if not version:
        first = said.strip().splitlines()[0] if said.strip() else "it printed nothing"
        return JavaCheck(path, home, 0, f"{path} is not a working Java installation: {first[:200]}", _INSTALL)
    if version < OLDEST_JAVA:
        return JavaCheck(path, home, version, f"Java {version} at {path} is too old for Spark 4", _INSTALL)
    if _MODULE not in modules:
        return JavaCheck(
            path,
            home,
            version,
            f"Java {version} at {path} lacks the module {_MODULE}",
            f"{_INSTALL}: a full build of the vendor; the Java runtimes on PyPI lack that module",
        )
    return JavaCheck(path, home, version, f"Java {version} at {path}")


def _program(environ: Mapping[str, str]) -> str | None:
    """JAVA_HOME wins over PATH, as it does in Spark's own `bin/spark-class`; a wrong one is not papered over."""
    if environ.get("JAVA_HOME"):
        return shutil.which("java", path=os.path.join(environ["JAVA_HOME"], "bin"))
    return shutil.which("java", path=environ.get("PATH", os.defpath))


def _output(command: list[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWERS_S,
            check=False,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return str(error)
    return done.stdout


def _version(said: str) -> int:
    """`version "17.0.15"` is 17, and `version "1.8.0_402"` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0
