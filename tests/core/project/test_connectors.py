"""Connectors: valid coordinates, and where their jars are."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from core.model.table_formats import table_format
from core.project.connectors import (
    CONNECTORS,
    DELTA,
    SPARK,
    connectors_of,
    coordinate_fault,
    fetched_folder,
)


def test_built_in_connectors_match_the_installed_spark() -> None:
    from importlib.metadata import version

    assert version("pyspark").startswith(f"{SPARK}.")
    assert not [
        coordinate_fault(each) for known in CONNECTORS.values() for each in known.coordinates if coordinate_fault(each)
    ]


@pytest.mark.parametrize(
    ("coordinate", "wrong"),
    [
        ("io.delta:delta-spark_4.2_2.13:4.5.0", ""),
        ("org.apache.kafka:kafka-clients:3.9.0", ""),
        ("delta-spark", "is not group:artifact:version"),
        ("io.delta:delta-spark_2.13:4.0.0", "is Delta for an older Spark, but pools run Spark 4.2"),
        ("io.delta:delta-spark_4.1_2.13:4.4.0", "is Delta for Spark 4.1, but pools run Spark 4.2"),
        ("io.delta:delta-spark_4.2_2.12:4.4.0", "is Delta for Scala 2.12, but pools run Scala 2.13"),
        ("io.delta:delta-core_2.12:2.4.0", "is Delta for an older Spark, but pools run Spark 4.2"),
    ],
)
def test_delta_for_another_spark_is_refused(coordinate: str, wrong: str) -> None:
    assert str(coordinate_fault(coordinate) or "") == wrong


def test_other_coordinates_are_another_folder_and_given_jars_are_not() -> None:
    newer = replace(DELTA, coordinates=("io.delta:delta-spark_4.2_2.13:4.5.0",))
    assert fetched_folder("/h", (DELTA,)) != fetched_folder("/h", (newer,))
    assert fetched_folder("/h", (DELTA,)) == fetched_folder("/h", (replace(DELTA, jars=("more.jar",)),))


def test_a_table_needs_the_connectors_of_its_format_and_of_its_store() -> None:
    assert connectors_of(table_format("delta"), "s3a://lake/e") == ("delta", "s3")
    assert connectors_of(table_format("json"), "/lake/e") == ()
    assert connectors_of(table_format("kafka"), "kafka://one:9092/t") == ("kafka",)
    assert connectors_of(table_format("json"), "gs://lake/e") == ()


def test_connectors_of_stores_have_the_version_of_hadoop_that_spark_has() -> None:
    jars = Path(find_spec("pyspark").origin).with_name("jars")
    (client,) = jars.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    found = [each for of in CONNECTORS.values() for each in of.coordinates if each.startswith("org.apache.hadoop:")]
    assert found and all(each.endswith(f":{version}") for each in found)
