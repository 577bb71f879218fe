"""The token of a pool: read anew from variables and files, kept from commands until it is refused, never shown."""

from pathlib import Path

import pytest

from core.model.secret_references import SecretKind, SecretReference
from pipelines.spark_connect import pool_token
from pipelines.spark_connect.pool_token import PoolToken, TokenUnavailable


def of(kind: SecretKind, what: str) -> PoolToken:
    return PoolToken(SecretReference(kind, what))


def test_a_variable_and_a_file_are_read_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable, file = of(SecretKind.VARIABLE, "POOL_TOKEN"), of(SecretKind.FILE, str(tmp_path / "token"))
    for value in ("one", "two"):
        monkeypatch.setenv("POOL_TOKEN", value)
        (tmp_path / "token").write_text(f"{value}\n")
        assert (variable(), file()) == (value, value)


def test_a_command_runs_again_only_after_its_token_was_refused(tmp_path: Path) -> None:
    runs, script = tmp_path / "runs", tmp_path / "token of spark"
    script.write_text(f"#!/bin/sh\necho x >> {runs}\nwc -l < {runs}\n")
    script.chmod(0o755)
    token = of(SecretKind.COMMAND, f"'{script}' --read")
    assert [token().strip(), token().strip()] == ["1", "1"]
    token.refused()
    assert token().strip() == "2"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo s3cret; echo s3cret >&2; exit 7'", "ended with exit code 7"),
        ("no-such-program", "cannot be run: No such file or directory"),
        ("sh -c 'echo one; echo s3cret'", "gives no token"),
        ("true", "gives no token"),
        ("printf 's3cret\\x80'", "printed no text"),
        ("sh -c 'unbalanced", "is no command"),
        ("sleep 60", "did not end within 0 s"),
    ],
)
def test_a_command_without_a_token_is_named_with_the_reason_and_without_its_output(
    command: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_token, "COMMAND_S", 0.3 if command == "sleep 60" else 10.0)
    with pytest.raises(TokenUnavailable) as raised:
        of(SecretKind.COMMAND, command)()
    assert raised.value.summary.startswith(f"${{command:{command}}} {why}")
    assert "s3cret" not in raised.value.sentence.replace(command, "")


def test_a_missing_variable_and_an_unreadable_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOL_TOKEN", raising=False)
    with pytest.raises(TokenUnavailable, match=r"^\$\{env:POOL_TOKEN\} is not set for the agent$"):
        of(SecretKind.VARIABLE, "POOL_TOKEN")()
    with pytest.raises(TokenUnavailable, match=r"cannot be read: No such file or directory$"):
        of(SecretKind.FILE, str(tmp_path / "none"))()
    (tmp_path / "token").write_bytes(b"\x80")
    with pytest.raises(TokenUnavailable, match="is not UTF-8"):
        of(SecretKind.FILE, str(tmp_path / "token"))()
