"""Request and result of the process that runs test cases; both survive JSON unchanged."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from core.project.revision import RevisionTexts

CASE_S = 60.0
"""Default time limit of one case, in seconds."""

_OWN = (
    "spark.sql.catalog",
    "spark.sql.warehouse",
    "spark.sql.hive",
    "spark.sql.extensions",
    "spark.sql.streaming.check",
)
"""Prefixes of settings that refer to tables, files or code of the pool."""


class CaseOutcome(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    """Its rows differ from the expected ones, or an upgrade produces other rows."""
    ERROR = "error"
    """Spark refused it or did not finish."""
    SKIPPED = "skipped"
    """It could not be run; the summary says why."""


class UpgradeVerdict(StrEnum):
    """How the new text behaved on the old checkpoint."""

    SAFE = "safe"
    """Same rows as without the old text."""
    SEAM = "seam"
    """Rows written before the upgrade differ; later rows are correct."""
    MIXED = "mixed"
    """Rows written by the new text are wrong because of old state in the checkpoint."""
    REFUSED = "refused"
    """Spark cannot continue from the old checkpoint, or the table became unreadable."""


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """Cases to run, with all texts that they need."""

    texts: Mapping[str, str]
    """Declaring files by path: headgate.yml, and the folders of the tested tables and their inputs."""
    tests: Mapping[str, str]
    """Files of the folders `tests` by path."""
    cases: tuple[str, ...] = ()
    """Paths of the cases to run, in order."""
    old: Mapping[str, RevisionTexts] = field(default_factory=dict)
    """The old texts by table, for upgrade tests; empty otherwise."""
    record: str = ""
    """A table for which a first case is generated, run and returned as text, instead of `cases`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings that decide what a statement computes."""
    case_s: float = CASE_S

    def as_json(self) -> dict[str, Any]:
        """Return the request as a JSON object."""
        return asdict(self)


def request_from_json(body: Mapping[str, Any]) -> CaseRequest:
    """Parse the output of `CaseRequest.as_json`."""
    old = {table: RevisionTexts(**texts) for table, texts in body["old"].items()}
    return CaseRequest(**{**body, "cases": tuple(body["cases"]), "old": old})


def settings_of_meaning(conf: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the pool settings that a test uses: SQL settings that do not refer to tables or code.

    Times without a zone are UTC unless the pool says otherwise.
    """
    taken = {key: value for key, value in conf if key.startswith("spark.sql.") and not key.startswith(_OWN)}
    return {"spark.sql.session.timeZone": "UTC", **taken, "spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one case ended."""

    path: str
    table: str
    name: str
    outcome: CaseOutcome
    summary: str
    """One sentence without a full stop."""
    took_s: float = 0.0
    difference: Mapping[str, Any] | None = None
    """`RowDifference.as_json`; None if there is no difference."""
    verdict: str = ""
    """An UpgradeVerdict; empty if no upgrade was tested."""
    detail: str = ""
    """Spark's message, or the recorded text."""

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return asdict(self)


def result_from_json(body: Mapping[str, Any]) -> CaseResult:
    """Parse the output of `CaseResult.as_json`."""
    return CaseResult(**{**body, "outcome": CaseOutcome(body["outcome"])})
