"""Spark as it is installed: its folder, found without importing it, and the environment that its programs run in."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from core.model.errors import PoolUnreachable


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
