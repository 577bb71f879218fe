"""Locations of external tables: complete URIs in known stores, for which the pools have a client."""

import pytest

from core.model.problems import Problem, Severity
from core.model.table_formats import table_format
from core.project_reader.loader import read_project
from core.project_reader.location_checks import LocationFault, location_fault

NO_CLIENT, NO_ROOT, UNKNOWN = LocationFault.NO_CLIENT, LocationFault.NO_ROOT, LocationFault.UNKNOWN


def problem(place: str, *, pool: str = "{}", connectors: str = "") -> Problem | None:
    """Return the problem of a project with one external table, whose DDL begins on the second line."""
    texts = {
        "headgate.yml": f"project: p\nid: 12345678-1234-5678-1234-567812345678\ndefault_env: dev\n"
        f"environments: {{dev: {{pool: {pool}}}}}\n{connectors}",
        "pipelines/sources/p/e/sql-scripts/ddl.e.sql": f"\nCREATE TABLE e (id BIGINT) USING json LOCATION '{place}';",
    }
    _, found = read_project(texts)
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("landing", None), ("/lake/e", None), ("file:/lake/e", None), ("hdfs://one:8020/e", None),
        ("hdfs://ha/e", None), ("s3a://lake", None), ("s3a://lake/e", None), ("s3://lake/e", None),
        ("s3a:/lake/e", NO_ROOT), ("s3a:///lake/e", NO_ROOT), ("s3a://c@lake/e", NO_ROOT), ("hdfs:/e", NO_ROOT),
        ("hdfs:///e", NO_ROOT), ("gs:///e", NO_ROOT), ("abfss://account.dfs.core.windows.net/e", NO_ROOT),
        ("gs://lake/e", NO_CLIENT), ("abfss://c@a.dfs.core.windows.net/e", NO_CLIENT),
        ("bogus://x", UNKNOWN), ("S3A://lake/e", UNKNOWN), ("webhdfs://one:9870/e", LocationFault.UNMEASURED),
        ("abfss://c@a.dfs.core.windows.net/x?sv=1&sig=abc", LocationFault.PASSWORD),
        ("s3a://key:secret@lake/e", LocationFault.PASSWORD), ("bogus://key:secret@lake/e", LocationFault.PASSWORD),
    ],
)  # fmt: skip
def test_a_location_is_a_path_or_a_complete_uri_in_a_known_store(place: str, kind: LocationFault | None) -> None:
    fault = location_fault(place, table_format("json"), {"s3"}, jars_known=True)
    assert (fault.kind if fault else None) is kind
    assert fault is None or fault.remedy


@pytest.mark.parametrize("place", ["s3a://lake/e", "s3://lake/e"])
def test_a_store_needs_its_connector(place: str) -> None:
    found = problem(place)
    assert found is not None and found.severity is Severity.ERROR
    assert f"{found.where}: {found.summary}" == (
        "pipelines/sources/p/e/sql-scripts/ddl.e.sql:2: e lies in S3, and headgate.yml names no connector s3"
    )
    assert "connectors: {s3: {}}" in found.remedy
    assert problem(place, connectors="connectors: {s3: {}}\n") is None


@pytest.mark.parametrize("pool", ["{url: 'sc://one:15002'}", "{conf: {spark.jars: /opt/aws.jar}}"])
def test_a_pool_with_jars_of_its_own_may_read_more(pool: str) -> None:
    found = problem("s3a://lake/e", pool=pool)
    assert found is not None and found.severity is Severity.WARNING and "its own jars" in found.summary
    found = problem("dbfs:/lake/e", pool=pool)
    assert found is not None and found.severity is Severity.WARNING and "stays unknown" in found.summary
    assert problem("gs://lake/e", pool=pool) is None
    found = problem("s3a:/lake/e", pool=pool)
    assert found is not None and found.severity is Severity.ERROR and "s3a://BUCKET/FOLDER" in found.remedy


def test_a_key_in_an_option_is_a_problem_that_does_not_show_it() -> None:
    place = "s3a://lake/e' OPTIONS ('fs.s3a.secret.key' = 'hunter2') COMMENT 'keys"
    found = problem(place, connectors="connectors: {s3: {}}\n")
    assert found is not None and found.summary == "e has a secret in its option fs.s3a.secret.key"
    assert "hunter2" not in repr(found)
