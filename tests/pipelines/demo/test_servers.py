"""What the servers of a scenario need: packages and Java."""

from pathlib import Path

import pytest

from core.model.errors import HeadgateError, UsageError
from pipelines.demo.servers import require_packages, resolved_jars


def test_missing_packages_are_named_with_the_extra_that_installs_them() -> None:
    with pytest.raises(UsageError, match="not installed: embedded-nothing") as refused:
        require_packages("json", "embedded_nothing")
    assert refused.value.remedy == "pip install 'headgate[demo]'"


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("pipelines.local_pool.java_and_spark.bundled_java", lambda: "")
    with pytest.raises(HeadgateError, match="no java"):
        resolved_jars(("a", "b", "1"), tmp_path)
