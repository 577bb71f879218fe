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
