"""Plan files: one line that survives a round trip, and every way in which it can be damaged, foreign or unsafe."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.model.errors import HeadgateError, Refused, UsageError
from core.plan.codec import canonical_text, plan_hash
from core.plan.file import SavedPlan, refuse_secrets, saved_as_text, saved_from_text
from tests.core.plan.test_hash import one

TEXTS = {"headgate.yml": "project: p\n", "pipelines/facts/p/a/sql-scripts/dml.a.sql": "INSERT INTO a SELECT 'é'"}


def saved() -> SavedPlan:
    plan = one()
    return SavedPlan(replace(plan, hash=plan_hash(plan)), TEXTS, 1_000.5, 87_400.5, "lee")


def test_a_saved_plan_is_one_line_and_survives_a_round_trip() -> None:
    text = saved_as_text(saved())
    assert text.count("\n") == 1 and text.endswith("\n") and text.isascii()
    assert saved_from_text(text, "f") == saved()
    assert saved_as_text(saved_from_text(text, "f")) == text


def test_the_same_plan_saved_at_another_time_has_the_same_hash_and_another_digest() -> None:
    later = json.loads(saved_as_text(replace(saved(), created_at=2_000.0)))
    first = json.loads(saved_as_text(saved()))
    assert (later["plan"]["hash"], later["digest"] == first["digest"]) == (first["plan"]["hash"], False)


@pytest.mark.parametrize("at", range(0, 4000, 97))
def test_any_letter_that_changes_is_found(at: int) -> None:
    text = saved_as_text(saved())
    at = at % (len(text) - 1)
    other = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
    with pytest.raises((UsageError, Refused)):
        saved_from_text(other, "f")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_half_written_file_does_not_count(share: float) -> None:
    text = saved_as_text(saved())
    with pytest.raises(UsageError, match="f is not a plan file"):
        saved_from_text(text[: int(len(text) * share)], "f")


def resealed(**parts: object) -> str:
    """Edit a file and recompute its digest, as an attacker who knows the format would."""
    from core.plan.file import _digest

    data = {**json.loads(saved_as_text(saved())), **parts}
    del data["digest"]
    return canonical_text({**data, "digest": _digest(data)})


def plan_json(**parts: object) -> dict[str, object]:
    return {**json.loads(saved_as_text(saved()))["plan"], **parts}


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("[]", UsageError, "f is not a plan file in format"),
        ('{"format": "headgate.plan/1"}', UsageError, "in format headgate.plan-file/1: headgate.plan/1"),
        (resealed(format="headgate.plan-file/2"), UsageError, "headgate.plan-file/2"),
        (
            resealed(plan=plan_json(planner="2")),
            Refused,
            "f was planned by planner version 2, but this program has version",
        ),
        (resealed(plan=plan_json(approvals=7)), UsageError, "its hash does not match its plan"),
        (resealed(plan=plan_json(nodes=[{}])), UsageError, "this plan is damaged"),
        (resealed(plan=None), UsageError, "lacks its plan"),
        (resealed(texts=[]), UsageError, "lacks its plan, texts"),
        (resealed(texts={"a": 1}), UsageError, "lacks its plan, texts"),
        (resealed(created_at=True), UsageError, "creation time"),
        (resealed(expires_at="never"), UsageError, "creation time"),
        (resealed(author=7), UsageError, "author or"),
        (saved_as_text(saved()).replace("1000.5", "NaN"), UsageError, "its digest does not match its content"),
        ("[" * 100_000, UsageError, "is not a plan file"),
    ],
)
def test_an_invalid_plan_file_is_reported_by_name(text: str, kind: type[HeadgateError], says: str) -> None:
    with pytest.raises(kind) as refused:
        saved_from_text(text, "f")
    assert says in refused.value.summary and refused.value.remedy


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("headgate.yml", "a:\n  url: sc://host:443/;token=abc", 2),
        ("headgate.yml", "conf:\n  spark.hadoop.fs.s3a.secret.key: abc", 2),
        ("a.yml", "password: 'x'", 1),
        ("dml.a.sql", "SELECT 1\nFROM STREAM t WITH ('kafka.password' = 'x')", 2),
        ("ddl.a.sql", "TBLPROPERTIES ('api_token'='x')", 1),
        ("ddl.a.sql", "OPTIONS (password 'x')", 1),
        ("ddl.a.sql", "USING jdbc OPTIONS (\n  url 'a (b)',\n  sessionToken 'x')", 3),
        ("ddl.a.sql", "USING jdbc options(user = 'u',\ntoken = \"x\")", 2),
        ("dml.a.sql", "SELECT 1\nFROM t WHERE password = 'x'", 2),
        ("dml.a.sql", "SELECT * FROM f(pwd => 'x')", 1),
        ("ddl.a.sql", "OPTIONS (\n'url'='jdbc:postgresql://user:pw@host/db')", 2),
        ("ddl.a.sql", "OPTIONS ('url'='jdbc:postgresql://${USER}:pw@host/db')", 1),
        ("ddl.a.sql", "OPTIONS ('url'='jdbc:postgresql://host/db?user=u&password=pw')", 1),
        ("ddl.a.sql", "OPTIONS ('url'='jdbc:sqlserver://host;user=u;password=pw')", 1),
        ("headgate.yml", "conf:\n  url: mongodb+srv://user:pw@host/db", 2),
        (
            "dml.a.sql",
            "WITH ('kafka.sasl.jaas.config' = 'o.P required username=\"u\" password=\"p\";')",
            1,
        ),
        ("dml.a.sql", "WITH ('kafka.sasl.jaas.config' = 'o.PlainLoginModule required password=p;')", 1),
        ("a.yml", "kafka.sasl.jaas.config: 'o.PlainLoginModule required password=\\\"p\\\";'", 1),
        ("a.yml", "fs.azure.account.key.x.dfs.core.windows.net: abc", 1),
        ("ddl.a.sql", "OPTIONS ('fs.azure.account.key.x'='abc')", 1),
        ("a.yml", "api_key: abc", 1),
        ("ddl.a.sql", "OPTIONS ('apiKey' 'abc')", 1),
        ("a.yml", "pwd: abc", 1),
        ("a.yml", "password: $abc", 1),
        ("ddl.a.sql", "OPTIONS ('password' = '$abc')", 1),
        ("dml.a.sql", "SELECT 1\n-- AKIAIOSFODNN7EXAMPLE", 2),
        ("a.yml", "a: b # ghp_0123456789abcdefghijABCDEFGHIJ012345", 1),
        ("dml.a.sql", "/*\n-----BEGIN RSA PRIVATE KEY-----\n*/", 2),
    ],
)
def test_a_secret_is_not_saved_and_its_line_is_named(path: str, text: str, line: int) -> None:
    with pytest.raises(Refused, match=f"{path}:{line} contains what looks like a secret"):
        refuse_secrets({path: text})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("headgate.yml", "conf:\n  spark.hadoop.fs.s3a.secret.key: ${SECRET}\npassword:\n"),
        ("dml.a.sql", "SELECT token, password FROM STREAM t WHERE token = 'x' AND secret_id > 1"),
        ("ddl.a.sql", "CREATE TABLE a (token STRING COMMENT 'x', `password` STRING)"),
        ("dml.a.sql", "OPTIONS ('password' = '${PASSWORD}')"),
        ("ddl.a.sql", "OPTIONS (password '${PASSWORD}', token = \"${TOKEN}\", password = '')"),
        ("ddl.a.sql", "OPTIONS ('url'='jdbc:postgresql://user:${PW}@host:5432/db?password=${PW}&a=b@c')"),
        ("dml.a.sql", "WITH ('kafka.sasl.jaas.config' = 'o.P required username=\"u\" password=\"${PASSWORD}\";')"),
        ("dml.a.sql", "SELECT a.pwd FROM STREAM a JOIN b ON a.password = b.password AND (a.token = 'x')"),
        ("headgate.yml", "url: https://host:8443/a@b\nconf:\n  fs.azure.account.key.x: ${KEY}\n  mail: a@b"),
        ("dml.a.sql", "SELECT 1 -- AKIA, ghp_ and the PRIVATE KEY of a host"),
    ],
)
def test_a_name_or_a_placeholder_is_no_secret(path: str, text: str) -> None:
    refuse_secrets({path: text})


@pytest.mark.parametrize("folder", ["pipelines/samples/pizzeria", "tests/fixtures/corpus"])
def test_our_own_texts_contain_no_secret(folder: str) -> None:
    root = Path(__file__).parents[3] / folder
    files = [path for path in root.rglob("*") if path.suffix in (".sql", ".yml", ".txt", ".list")]
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        refuse_secrets({str(path): text} if path.suffix in (".sql", ".yml") else {f"{path}.sql": text})
