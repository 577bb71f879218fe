"""Jars of connectors for tests, downloaded once into the user's cache as the product downloads them for a pool."""

from functools import cache
from pathlib import Path

import pytest

from core.model.errors import HeadgateError
from core.project.connectors import DELTA, KAFKA, POSTGRES, S3, Connector
from pipelines.demo.servers import cache_folder
from pipelines.local_pool.connector_jars import ConnectorJars
from pipelines.local_pool.java_and_spark import find_java, spark_home

CACHE = cache_folder()


def delta_jars() -> Path:
    """Return the folder with Delta's jars; skip the test if no jar repository can be reached."""
    return _jars_of(DELTA)


def kafka_jars() -> Path:
    """Return the folder with the jars of Spark's Kafka source; skip the test like `delta_jars`."""
    return _jars_of(KAFKA)


def postgres_jars() -> Path:
    """Return the folder with the driver for PostgreSQL; skip the test like `delta_jars`."""
    return _jars_of(POSTGRES)


def s3_jars() -> Path:
    """Return the folder with the jars of Hadoop's client for S3; skip the test like `delta_jars`."""
    return _jars_of(S3)


def _jars_of(connector: Connector) -> Path:
    folder, failure = _obtained(connector)
    if failure:
        pytest.skip(f"no jars of {connector.name}: {failure}")
    return folder


@cache
def _obtained(connector: Connector) -> tuple[Path, str]:
    """Return the folder, and the reason if it is empty, else ""; tries only once per process."""
    jars = ConnectorJars(CACHE, CACHE, (connector,), {})
    try:
        if jars.fetched() is None:
            jars.obtain(spark_home(), find_java().home, print)
    except HeadgateError as error:
        return jars.folder, str(error)
    return jars.folder, ""
