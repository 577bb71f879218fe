"""Delta's jars for tests: fetched once into the user's cache, as the product fetches them for a pool."""

import os
from functools import cache
from pathlib import Path

import pytest

from core.model.errors import HeadgateError
from core.project.connectors import DELTA
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_and_spark import find_java, spark_home


def delta_jars() -> Path:
    """Return the folder that holds them; skips the test on a machine that cannot reach a repository of jars."""
    folder, failure = _obtained()
    if failure:
        pytest.skip(f"Delta is not tried here: {failure}")
    return folder


@cache
def _obtained() -> tuple[Path, str]:
    """Return the folder, and why nothing is in it; asks once in each process."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headgate-tests"
    jars = ConnectorJars(cached, cached, (DELTA,), {})
    try:
        if jars.fetched() is None:
            jars.obtain(spark_home(), find_java().home, print)
    except HeadgateError as error:
        return jars.folder, str(error)
    return jars.folder, ""
