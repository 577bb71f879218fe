"""Delta's jars for tests: fetched once into the user's cache, as the product fetches them for a pool."""

import os
from pathlib import Path

from core.project.connectors import DELTA
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_check import find_java
from pipelines.local_pool.spark_program import spark_home


def delta_jars() -> Path:
    """Return the folder that holds them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate-tests"
    jars = ConnectorJars(cache, cache, (DELTA,), {})
    if jars.fetched() is None:
        jars.obtain(spark_home(), find_java().home, print)
    return jars.folder
