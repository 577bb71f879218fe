"""Delta's jars for tests, downloaded once into the user's cache, in the same way as for a pool."""

import os
from functools import cache
from pathlib import Path

import pytest

from core.model.errors import HeadgateError
from core.project.connectors import DELTA
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_and_spark import find_java, spark_home


def delta_jars() -> Path:
    """Return the folder with the jars; skip the test if no jar repository is reachable."""
    folder, failure = _obtained()
    if failure:
        pytest.skip(f"no jars of Delta: {failure}")
    return folder


@cache
def _obtained() -> tuple[Path, str]:
    """Return the folder with the jars, and why they could not be obtained (else ""); tried once per process."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate-tests"
    jars = ConnectorJars(cached, cached, (DELTA,), {})
    try:
        if jars.fetched() is None:
            jars.obtain(spark_home(), find_java().home, print)
    except HeadgateError as error:
        return jars.folder, str(error)
    return jars.folder, ""
