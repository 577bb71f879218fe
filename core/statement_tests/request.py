"""Request and results of the process that runs test cases; both convert to JSON and back without loss."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from core.project.revision import RevisionTexts, texts_as_json, texts_from_json

CASE_S = 60.0
"""Default time limit of one case, in seconds."""

INSTALL_S = 240.0
"""Time allowed for the installation of one list of packages, in seconds."""

_OWN = (
    "spark.sql.catalog",
    "spark.sql.warehouse",
    "spark.sql.hive",
    "spark.sql.extensions",
    "spark.sql.streaming.check",
)
"""Prefixes of settings that refer to the pool's own tables, files or code."""


class CaseOutcome(StrEnum):
    """Whether a test case passed, and if not, why."""

    PASSED = "passed"
    FAILED = "failed"
    """The rows differ from the expected rows, or a restart with the new SQL produces other rows."""
    ERROR = "error"
    """Spark refused the statement or did not finish."""
    SKIPPED = "skipped"
    """The case could not be run; the summary gives the reason."""


class UpgradeVerdict(StrEnum):
    """What happened when the new SQL continued from the old SQL's checkpoint."""

    SAFE = "safe"
    """The upgraded statement wrote the same rows as the new SQL alone."""
    SEAM = "seam"
    """Rows written before the upgrade differ from those of the new SQL; later rows are correct."""
    MIXED = "mixed"
    """Rows written after the upgrade are wrong because the checkpoint contains state that the old SQL left."""
    REFUSED = "refused"
    """Spark cannot continue from the old checkpoint, or the table became unreadable."""


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """A request to run test cases, with all project files that the tests need."""

    texts: Mapping[str, str]
    """Contents of project files by path: headgate.yml, and the folders of the tested tables and of their inputs."""
    tests: Mapping[str, str]
    """Contents of the files in the `tests` folders, by path."""
    cases: tuple[str, ...] = ()
    """Paths of the test cases to run, in order."""
    old: Mapping[str, RevisionTexts] = field(default_factory=dict)
    """The old SQL and YAML by table, for upgrade tests; empty for other tests."""
    record: str = ""
    """The table whose first case is to be generated, run and returned; empty to run `cases` instead."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings that affect the results of a statement."""
    case_s: float = CASE_S
    environment: str = ""
    """The environment whose values replace variables; empty for the default environment."""
    packages: str = ""
    """The folder with the environments of packages that jobs need; empty if the environment's pool cannot use them."""
    install_s: float = 0.0
    """Time allowed for the installation of packages before the first case, in seconds."""
    jars: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths of the jars of functions, by the hash of their content."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "old": {table: texts_as_json(texts) for table, texts in self.old.items()}}


def request_from_json(body: Mapping[str, Any]) -> CaseRequest:
    """Rebuild a request from the output of `CaseRequest.as_json`."""
    old = {table: texts_from_json(texts) for table, texts in body["old"].items()}
    return CaseRequest(**{**body, "cases": tuple(body["cases"]), "old": old})


def settings_of_meaning(conf: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the settings for tests: the pool's SQL settings, except those about its own tables, files or code.

    The session time zone is UTC unless the pool sets another. Tests always use a single shuffle partition.
    """
    taken = {key: value for key, value in conf if key.startswith("spark.sql.") and not key.startswith(_OWN)}
    return {"spark.sql.session.timeZone": "UTC", **taken, "spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The outcome of a test case, with the details to display."""

    path: str
    table: str
    name: str
    outcome: CaseOutcome
    summary: str
    """A sentence without a full stop."""
    took_s: float = 0.0
    difference: Mapping[str, Any] | None = None
    """The output of `RowDifference.as_json`; None if there is no difference."""
    verdict: str = ""
    """An `UpgradeVerdict`; empty if no upgrade was tested."""
    detail: str = ""
    """Spark's message, or the content of the recorded case file."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def result_from_json(body: Mapping[str, Any]) -> CaseResult:
    """Rebuild a result from the output of `CaseResult.as_json`."""
    return CaseResult(**{**body, "outcome": CaseOutcome(body["outcome"])})
