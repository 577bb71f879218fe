"""Fingerprints: each one changes with its part of a revision and with nothing else."""

from dataclasses import asdict, replace

import pytest

from core.changes.fingerprint import Fingerprints, fingerprint
from core.project.model import Pool
from core.project.revision import RevisionTexts, revision_hash
from core.sql.ddl_reader import read_ddl
from core.sql.statement_reader import read_statements

DDL = "CREATE TABLE t (k STRING COMMENT 'key', s BIGINT) USING parquet PARTITIONED BY (k) TBLPROPERTIES ('a'='b')"
DML = (
    "INSERT INTO t SELECT x.k, sum(x.v) AS s FROM STREAM a WITH (maxFilesPerTrigger=1) IDENTIFIED BY src "
    "WATERMARK ts DELAY OF INTERVAL 1 MINUTE x JOIN dim d ON d.k = x.k WHERE x.v > 0 "
    "GROUP BY x.k, window(x.ts, '5 minutes') HAVING sum(x.v) > 1"
)
YML = "trigger: 10 seconds\nowner: lee\n"


POOL = Pool(conf=(("spark.executor.cores", "4"), ("spark.sql.shuffle.partitions", "2")))


def prints(ddl: str = DDL, dml: str = DML, yml: str = YML, pool: Pool = POOL) -> Fingerprints:
    """Return the fingerprints of a revision without Problems."""
    facts, problems = read_ddl(ddl, "ddl.t.sql")
    (parsed,), more = read_statements(dml, "dml.t.sql")
    assert facts is not None and (*problems, *more) == ()
    return fingerprint(RevisionTexts(ddl, dml, yml), parsed, facts, runs_on=pool)


def changed(new: Fingerprints) -> set[str]:
    """Return the names of the fingerprints that differ from those of the texts above."""
    old = asdict(prints())
    return {name for name, value in asdict(new).items() if value != old[name]}


def test_all_are_hashes_that_do_not_depend_on_the_process() -> None:
    values = asdict(prints())
    assert all(len(value) == 64 and set(value) <= set("0123456789abcdef") for value in values.values())


@pytest.mark.parametrize(
    ("find", "put", "names"),
    [
        ("SELECT", "SELECT -- why\n", {"text"}),
        ("> 0", ">= 0", {"text", "sem", "pre"}),
        ("> 1", "> 9", {"text", "sem", "post"}),
        ("5 minutes", "9 minutes", {"text", "sem", "state", "pre"}),
        ("1 MINUTE", "2 MINUTES", {"text", "sem", "state"}),
        ("maxFilesPerTrigger=1", "maxFilesPerTrigger=2", {"text", "sem", "sources"}),
        ("IDENTIFIED BY src", "IDENTIFIED BY other", {"text", "sem", "sources"}),
        ("STREAM a", "STREAM b", {"text", "sem", "sources", "pre", "state"}),
        ("JOIN dim", "JOIN dim2", {"text", "sem", "static", "pre"}),
        ("INTO t", "INTO u", {"text", "sem"}),
        ("x.v > 0", "my_score(x.v) > 0", {"text", "sem", "pre", "udf"}),
        ("x.v > 0", "abs(x.v) > 0", {"text", "sem", "pre"}),
        ("x.v > 0", "x.k <> 'my_score(v)'", {"text", "sem", "pre"}),
    ],
)
def test_an_edit_of_the_statement_changes_its_parts(find: str, put: str, names: set[str]) -> None:
    assert changed(prints(dml=DML.replace(find, put, 1))) == names


@pytest.mark.parametrize(
    ("find", "put", "names"),
    [
        ("'key'", "'the key'", {"text"}),
        ("BIGINT", "LONG", {"text"}),
        ("BIGINT", "INT", {"text", "schema"}),
        ("s BIGINT", "s BIGINT NOT NULL", {"text", "schema"}),
        ("s BIGINT", "s BIGINT, n INT", {"text", "schema"}),
        ("parquet", "delta", {"text", "sink"}),
        (" PARTITIONED BY (k)", "", {"text", "sink"}),
        ("'a'='b'", "'a'='c'", {"text", "sink"}),
    ],
)
def test_an_edit_of_the_table_changes_sink_or_schema(find: str, put: str, names: set[str]) -> None:
    assert changed(prints(ddl=DDL.replace(find, put, 1))) == names


@pytest.mark.parametrize(
    ("pool", "names"),
    [
        (replace(POOL, memory="9g"), set()),
        (replace(POOL, name="heavy"), {"pool"}),
        (replace(POOL, url="sc://elsewhere:15002"), {"pool"}),
        (replace(POOL, conf=(*POOL.conf[:1], ("spark.sql.shuffle.partitions", "4"))), {"conf_pinned"}),
        (replace(POOL, conf=(*POOL.conf, ("spark.sql.session.timeZone", "UTC"))), {"conf_restartable"}),
    ],
)
def test_the_fingerprint_of_the_environment_covers_pool_and_configuration(pool: Pool, names: set[str]) -> None:
    assert changed(prints(pool=pool)) == names


def test_unknown_parts_have_no_fingerprint() -> None:
    (parsed,), _ = read_statements(DML, "dml.t.sql")
    found = fingerprint(RevisionTexts("", DML, ""), parsed, None).as_json()
    assert {name for name, value in found.items() if value is None} == {
        "sink", "schema", "conf_pinned", "conf_restartable", "pool"
    }  # fmt: skip


def test_settings_change_with_the_yml_but_not_with_its_comments() -> None:
    assert changed(prints(yml=YML + "\n# said\n")) == {"text"}
    assert changed(prints(yml=YML.replace("10", "20"))) == {"text", "settings"}


def test_line_endings_and_byte_order_marks_make_no_revision() -> None:
    unix = RevisionTexts("a\nb", "c\n", "d")
    assert revision_hash(unix) == revision_hash(RevisionTexts("\ufeffa\r\nb", "\ufeffc\r\n", "d"))
    assert revision_hash(unix) != revision_hash(RevisionTexts("a\nb", "c", "d"))


def test_texts_do_not_run_into_each_other() -> None:
    assert revision_hash(RevisionTexts("ab", "c", "")) != revision_hash(RevisionTexts("a", "bc", ""))


def test_an_external_table_has_no_statement() -> None:
    facts, _ = read_ddl(DDL, "ddl.t.sql")
    assert facts is not None
    external = fingerprint(RevisionTexts(DDL), None, facts)
    assert external.sem == external.state == external.pre == external.sources == external.static
    assert external.schema == prints().schema
