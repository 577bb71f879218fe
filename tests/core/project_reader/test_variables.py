"""Variables: declared in headgate.yml, replaced in SQL and yml, and every mistake reported at its place."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import TokenType

from core.model.names import TableName as T
from core.model.problems import Problem, Severity
from core.project.model import Project, Table
from core.project.revision import RevisionTexts, revision_hash, texts_as_json, texts_from_json, written_hash
from core.project.variables import Variable, VariableType, is_valid
from core.project_reader.loader import read_project
from core.project_reader.manifest import declared_policy
from core.project_reader.parse_cache import ParseCache
from core.project_reader.revision_reader import read_revision, revision_of
from core.project_reader.substitution import substitute_sql
from core.sql.tokens.lexer import open_sql, tokens_of

HEAD = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
variables:
  days: {type: int, default: 7}
  region: {type: string}
environments:
  dev: {data: dev, variables: {region: eu}}
  prod:
    variables: {region: "us'", days: 30}
"""
PLACE = "pipelines/facts/p/a"
DML, DDL, YML = f"{PLACE}/sql-scripts/dml.a.sql", f"{PLACE}/sql-scripts/ddl.a.sql", f"{PLACE}/a.yml"


def texts(
    select: str = "SELECT id FROM STREAM src WHERE region = ${region} AND age < ${days}",
    *,
    head: str = HEAD,
    ddl: str = "CREATE TABLE a (id BIGINT) USING parquet;",
    yml: str = "",
) -> dict[str, str]:
    source = "pipelines/sources/p/src/sql-scripts/ddl.src.sql"
    columns = "id BIGINT, region STRING, age INT, ts TIMESTAMP"
    found = {
        "headgate.yml": head,
        source: f"CREATE TABLE src ({columns}) USING json LOCATION 'in';",
        DDL: ddl,
        DML: f"INSERT INTO a\n{select};\n",
    }
    return found | ({YML: yml} if yml else {})


def good(found: Mapping[str, str], environment: str = "dev") -> Project:
    project, problems = read_project(found, environment=environment)
    assert project is not None, problems
    return project


def table(found: Mapping[str, str], environment: str = "dev") -> Table:
    return good(found, environment).tables[T("a")]


def problems(found: Mapping[str, str], environment: str = "dev") -> list[str]:
    every = read_project(found, environment=environment)[1]
    assert all(each.where and each.remedy for each in every)
    return [f"{each.where}: {each.summary} [{each.remedy}]" for each in every]


def test_each_environment_has_its_own_values() -> None:
    found = texts()
    for environment, filter in (("dev", "region = 'eu' AND age < 7"), ("prod", "region = 'us\\'' AND age < 30")):
        declared = table(found, environment)
        assert declared.dml is not None and declared.dml.text.endswith(f"WHERE {filter};\n")
        assert declared.dml.as_written == found[DML]
    assert table(found, "prod").variables == (("days", "30"), ("region", "us'"))


def test_a_revision_has_its_texts_as_written_and_one_identity_in_all_environments() -> None:
    found = texts(yml="trigger: ${days} seconds\nowner: ${region}\n")
    dev, prod = (revision_of(table(found, each)).texts for each in ("dev", "prod"))
    assert dev.yml == "trigger: 7 seconds\nowner: eu\n"
    assert dev.as_written == RevisionTexts(found[DDL], found[DML], 'trigger: "${days} seconds"\nowner: ${region}\n')
    assert written_hash(dev) == written_hash(prod) and revision_hash(dev) != revision_hash(prod)
    assert texts_from_json(texts_as_json(dev)) == dev
    again = read_revision(T("a"), dev, good(found).defaults)
    assert again is not None and again.hash == revision_hash(dev) and again.settings.trigger == "7 seconds"
    # The texts as written are a project's files again.
    restored = texts(yml=dev.as_written.yml)
    assert revision_of(table(restored, "prod")).hash == revision_hash(prod)


def test_without_variables_texts_and_hashes_are_as_before() -> None:
    plain = revision_of(table(texts("SELECT id FROM STREAM src"))).texts
    assert (plain.written, plain.variables) == (None, ())
    assert texts_as_json(plain) == {"ddl": plain.ddl, "dml": plain.dml, "yml": plain.yml}
    assert written_hash(plain) == revision_hash(plain)


def test_values_replace_variables_in_ddl_and_in_every_kind_of_setting() -> None:
    head = HEAD.replace(
        "  region:", "  flag: {type: boolean, default: true}\n  gone: {type: string, default: D}\n  region:"
    )
    head += "connectors: {delta: {}}\n"
    ddl = "CREATE TABLE a (id BIGINT COMMENT 'of ${region}', age INT) USING delta TBLPROPERTIES ('x' = '/d/${region}');"
    yml = (
        "mode: upsert\nkey: [id]\nsequence: age\ndeletes: id = ${days} OR 'x' = ${gone} -- ${none}\nprotect: ${flag}\n"
        'tags: ["${region}", "in ${region}"]\nobjective: {behind: "${days} minutes"}\n'
        "checks:\n- name: old\n  sql: |\n    SELECT * FROM a\n    WHERE id < ${days} AND '${region}' = 'eu'\n"
    )
    found = table(texts("SELECT id, age FROM STREAM src", head=head, ddl=ddl, yml=yml))
    assert found.parsed_ddl.properties == (("x", "/d/eu"),)
    settings = found.settings
    assert (settings.protect, settings.tags, settings.objective) == (True, ("eu", "in eu"), "7 minutes")
    assert settings.deletes == "id = 7 OR 'x' = 'D' -- ${none}"
    assert settings.checks == (("old", "SELECT * FROM a\nWHERE id < 7 AND 'eu' = 'eu'\n"),)
    written = revision_of(found).texts.as_written.yml
    assert "protect: ${flag}\n" in written and 'tags: ["${region}", "in ${region}"]\n' in written
    again = table(texts("SELECT id, age FROM STREAM src", head=head, ddl=ddl, yml=written))
    assert again.settings == settings and revision_of(again).texts == revision_of(found).texts


V = {
    "s": Variable("s", VariableType.STRING, "it's \\n"),
    "n": Variable("n", VariableType.INT, "-5"),
    "d": Variable("d", VariableType.DECIMAL, "0.5"),
    "b": Variable("b", VariableType.BOOLEAN, "true"),
    "i": Variable("i", VariableType.INTERVAL, "10 minutes"),
    "day": Variable("day", VariableType.DATE, "2026-01-31"),
    "at": Variable("at", VariableType.TIMESTAMP, "2026-01-31 12:00:00"),
    "name": Variable("name", VariableType.IDENTIFIER, "orders"),
    "end": Variable("end", VariableType.STRING, "*/ x"),
}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = ${s}", r"a = 'it\'s \\n'"),
        ("a = '<${s}>'", r"a = '<it\'s \\n>'"),
        ('a = "${s}"', r'a = "it' + "'" + r's \\n"'),
        ("a -${n}", "a -(-5)"),
        ("'${n}' ${d}", "'-5' 0.5"),
        ("${b}, '${b}'", "true, 'true'"),
        ("DELAY OF ${i}, window(ts, '${i}')", "DELAY OF INTERVAL 10 minutes, window(ts, '10 minutes')"),
        ("ts > ${at} OR d = ${day} OR d = DATE '${day}'",
         "ts > TIMESTAMP'2026-01-31 12:00:00' OR d = DATE'2026-01-31' OR d = DATE '2026-01-31'"),
        ("FROM STREAM ${name}_eu, `${name}`, x.${name}", "FROM STREAM orders_eu, `orders`, x.orders"),
        ("-- ${none}\n/* ${none} /* ${none} */ ${end} */ /*+ REPARTITION(${d}) */",
         "-- ${none}\n/* ${none} /* ${none} */ ${end} */ /*+ REPARTITION(0.5) */"),
        ("r'\\d${name}'", "r'\\dorders'"),
        ("${env:NAME} '${file:/a}'", "${env:NAME} '${file:/a}'"),
        ("'a\\\\${name}'", "'a\\\\orders'"),
    ],
)  # fmt: skip
def test_a_value_is_a_literal_outside_of_quotes_and_text_inside(sql: str, expected: str) -> None:
    wrong: list[Problem] = []
    assert substitute_sql(sql, "a.sql", V, wrong).text == expected
    assert not wrong


@pytest.mark.parametrize(
    ("sql", "summary"),
    [
        ("a${d}", "${d} touches what stands beside it, and would become 0.5 there"),
        ("${s}'x'", "${s} touches what stands beside it"),
        ("r${s}", "${s} touches"),
        ("${d}${d}", "${d} touches"),
        ("${name}'x'", "${name} touches"),
        ("INTERVAL ${i}", "INTERVAL stands before ${i}, which becomes INTERVAL 10 minutes"),
        ("'\\${s}'", "a backslash stands before ${s}"),
        ("r'${s}'", "the value of s contains the quote that ends this raw string"),
        ("${nam}", "nam is not a declared variable"),
    ],
)
def test_what_could_break_the_sql_around_it_is_refused(sql: str, summary: str) -> None:
    every = problems(texts(f"SELECT id,\n  {sql} AS x FROM STREAM src", head=_head()))
    mine = [each for each in every if "no file uses" not in each]
    assert mine and all(each.startswith(f"{DML}:3:") for each in mine) and f": {summary}" in mine[0]


def _head() -> str:
    """Return a headgate.yml that declares V."""
    given = {name: each.value.replace("\\", "\\\\") for name, each in V.items()}
    quoted = {name: f'"{value}"' if V[name].type is VariableType.STRING else value for name, value in given.items()}
    lines = [f"  {name}: {{type: {each.type}, default: {quoted[name]}}}\n" for name, each in V.items()]
    return HEAD.replace("environments:", "".join(lines) + "environments:")


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        (VariableType.INT, ("0", "-5", "999999999999999999"), ("", "07", "1e3", "1_000", "+1", "1.0", "7;")),
        (VariableType.DECIMAL, ("0.5", "-0.5", "10"), (".5", "5.", "1e3", "NaN")),
        (VariableType.INTERVAL, ("1 day 2 hours", "0 seconds", "2 months"), ("10", "2 months 3 days", "-1 day")),
        (VariableType.DATE, ("2026-02-28",), ("2026-02-30", "2026-2-3", "20260228")),
        (VariableType.TIMESTAMP, ("2026-01-31 12:00", "2026-01-31T12:00:00.5+02:00"), ("2026-01-31T12:00Z", "12:00")),
        (VariableType.IDENTIFIER, ("a_1",), ("a.b", "1a", "a b", "`a`", "ä")),
        (VariableType.STRING, ("", "it's"), ("a\nb", "a\tb", "\x00", "x" * 5000)),
    ],
)  # fmt: skip
def test_a_value_has_the_form_of_its_type_in_spark(
    type: VariableType, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    assert [value for value in good if not is_valid(type, value)] == []
    assert [value for value in bad if is_valid(type, value)] == []


@given(st.text(st.characters(exclude_categories=("C", "Z")), max_size=20), st.sampled_from(["'", '"', ""]))
def test_no_text_can_end_the_literal_around_it(value: str, quote: str) -> None:
    variables = {"s": Variable("s", VariableType.STRING, value)}
    sql = f"SELECT {quote}${{s}}{quote} AS x, 'after'"
    tokens = tokens_of(open_sql(substitute_sql(sql, "a.sql", variables, []).text, "a.sql"))
    kinds = [token.token_type for token in tokens]
    assert kinds[1] is TokenType.STRING and str(tokens[1].text) == value
    assert [str(token.text) for token in tokens[2:]] == ["AS", "x", ",", "after"]


def test_every_mistake_in_headgate_yml_is_reported_at_once() -> None:
    head = """project: shop
id: 12345678-1234-5678-1234-567812345678
default_env: dev
variables:
  days: {type: int, default: seven}
  region: {type: string}
  kind: {type: strin, default: x}
  a: {type: string, default: "${b}"}
  b: {type: string, default: "${a}!"}
  c: {type: string, default: "${regon}"}
  flag: {type: boolean}
  code: {type: string, default: 7}
  db_password: {type: string, default: hunter2}
  url: {type: string, default: "jdbc://me:pw@host/x"}
  9x: {type: int}
environments:
  dev: {data: dev, variables: {region: eu, flag: maybe, dayz: 3}}
  prod:
    variables: {flag: true}
"""
    found = [each.removeprefix("headgate.yml:") for each in problems(texts(head=head)) if "no file" not in each]
    assert found == [
        "5: variable days must be a whole number [write a value such as 7, or declare days with another type]",
        "7: variables.kind.type must be the type of a variable [did you mean string?]",
        "8: the values of variables refer to each other: a → b → a [give one of them a value of its own]",
        "10: the value of c refers to regon, which is not declared [did you mean region?]",
        '12: variable code must be a string [put it in quotes: "7"]',
        "13: the value of db_password would be a secret in a file "
        '[write a reference instead: "${env:NAME}" or "${file:/path}"]',
        "14: the value of url would be a secret in a file "
        '[write a reference instead: "${env:NAME}" or "${file:/path}"]',
        "15: variables.9x must be named with letters, digits and _ [give the variable another name]",
        "17: dayz is not a declared variable [did you mean days?]",
        "17: variable flag must be true or false [write a value such as true, or declare flag with another type]",
        "19: environment prod gives no value for the variable region, which has no default "
        "[write variables: {region: …} below prod, or give region a default]",
    ]


def test_values_that_grow_without_end_or_hide_a_secret_are_reported() -> None:
    chain = "".join(f'  c{n:03}: {{default: "${{c{n + 1:03}}}"}}\n' for n in range(500)) + "  c500: {default: x}\n"
    doubled = "".join(f'  d{n:02}: {{default: "${{d{n + 1:02}}}${{d{n + 1:02}}}"}}\n' for n in range(18))
    others = """  d18: {default: x}
  db_pass: {type: identifier, default: hunter2}
  password: {default: 12345678}
  e: {default: "password="}
  f: {default: "${e}hunter2"}
  g: {default: "$"}
  h: {default: "${g}{a-b}"}
  n: {type: INT, default: 5}
  token_lifetime: {type: interval, default: 1 hour}
"""
    head = HEAD.replace("  region:", f"{chain}{doubled}{others}  region:")
    found = [each.split(": ", 1)[1] for each in problems(texts(head=head))]
    for expected in (
        "more than 20 variables refer to each other in a chain, from c000 to c021 [write some of the values out]",
        "the value of d06 is longer than 4,000 characters [write a shorter value]",
        "the value of db_pass would be a secret in a file",
        "the value of password would be a secret in a file",
        "the value of f would be a secret in a file",
        "the value of h contains ${, which begins the name of a variable",
        "variables.n.type must be the type of a variable [did you mean int?]",
    ):
        assert any(each.startswith(expected) for each in found), expected
    errors = [each for each in found if not each.startswith("no file uses")]
    assert not any(word in each for each in errors for word in ("12345678", "variable n ", "token_lifetime"))


def test_a_reference_to_a_secret_stays_a_reference() -> None:
    head = HEAD.replace("  region:", '  pw: {type: string, default: "${env:PW}"}\n  region:')
    ddl = (
        "CREATE TABLE k (id BIGINT) USING kafka OPTIONS ("
        "'kafka.bootstrap.servers' = 'h:1', 'subscribe' = 't', 'value.format' = 'json', "
        "'kafka.sasl.password' = '${pw}', 'kafka.sasl.username' = 'u', 'kafka.sasl.mechanism' = 'PLAIN', "
        "'kafka.security.protocol' = 'SASL_SSL');"
    )
    found = texts(head=head) | {"pipelines/sources/p/k/sql-scripts/ddl.k.sql": ddl}
    head = good({**found, "headgate.yml": head + "connectors: {kafka: }\n"}).tables[T("k")].ddl.text
    assert "'kafka.sasl.password' = '${env:PW}'" in head


def test_variables_that_no_file_uses_are_warnings_and_unknown_ones_have_a_suggestion() -> None:
    found = texts("SELECT id FROM STREAM src WHERE region = ${regio}")
    project, every = read_project(found)
    assert project is None
    assert [(str(each.where), each.summary, each.remedy, each.severity) for each in every] == [
        ("headgate.yml:5", "no file uses the variable days", "remove it", Severity.WARNING),
        ("headgate.yml:6", "no file uses the variable region", "remove it", Severity.WARNING),
        (f"{DML}:2:42", "regio is not a declared variable", "did you mean region?", Severity.ERROR),
    ]


def test_positions_are_those_of_the_file_as_written() -> None:
    select = "SELECT id FROM STREAM src WHERE '${region} is long' <> ${days} AND AND"
    (wrong,) = problems(texts(select, head=HEAD.replace("region: eu", "region: a very long region")))
    assert wrong.startswith(f"{DML}:2:{select.index('AND AND') + 4 + 1}: ")


def test_a_table_is_protected_where_its_variable_is_true() -> None:
    head = HEAD.replace("  region:", "  kept: {type: boolean, default: false}\n  region:").replace(
        "days: 30", "kept: true"
    )
    found = texts("SELECT id FROM STREAM src", head=head, yml="protect: ${kept}\n")
    wrong: list[Problem] = []
    policies = [declared_policy(found, environment, wrong) for environment in ("dev", "prod")]
    assert not wrong and [each.protected_tables for each in policies if each] == [(), (T("a"),)]


def test_a_setting_in_brackets_needs_quotes_and_defaults_take_no_variables() -> None:
    assert 'write "${…}" in quotes' in problems(texts(yml="tags: [${region}]\n"))[0]
    assert "defaults.owner uses a variable" in problems(texts(head=HEAD + 'defaults: {owner: "${region}"}\n'))[0]
    assert problems(texts(yml="owner: ${regoin}\n"))[0].startswith(f"{YML}:1: regoin is not a declared variable")
    below = problems(texts(yml="description: |\n  one\n  two ${regoin}\n"))[0]
    assert below.startswith(f"{YML}:3: regoin is not a declared variable")


def test_a_cached_yml_gives_the_same_revision() -> None:
    found, cache = texts(yml="trigger: ${days} seconds\n"), ParseCache()
    first, _ = read_project(found, cache, environment="prod")
    again, _ = read_project(found, ParseCache(cache.take_fresh()), environment="prod")
    assert first == again and first is not None
    assert revision_of(first.tables[T("a")]).texts.yml == "trigger: 30 seconds\n"
