"""What the process that runs cases is asked, and what it answers: values that go through JSON unchanged."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from core.project.revision import RevisionTexts

CASE_S = 60.0
"""How long one case may take, unless the operator says otherwise."""

_OWN = (
    "spark.sql.catalog",
    "spark.sql.warehouse",
    "spark.sql.hive",
    "spark.sql.extensions",
    "spark.sql.streaming.check",
)
"""Settings that lead to tables, files or code of the operator's."""


class CaseOutcome(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    """Its rows are not those that were expected, or an upgrade gives other rows."""
    ERROR = "error"
    """Spark refused it or did not finish."""
    SKIPPED = "skipped"
    """It could not be tried; says why."""


class UpgradeVerdict(StrEnum):
    """What the old checkpoint did to the new text."""

    SAFE = "safe"
    """The same rows as without the old text."""
    SEAM = "seam"
    """Rows that were written before differ, those written afterwards are right."""
    MIXED = "mixed"
    """Rows that the new text wrote are wrong, because of what the old one left in the checkpoint."""
    REFUSED = "refused"
    """Spark does not go on from the old checkpoint, or the table cannot be read any more."""


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """Cases to run, with every text that they need."""

    texts: Mapping[str, str]
    """Declaring files by path: headgate.yml, and the folders of the tested tables and of what they read."""
    tests: Mapping[str, str]
    """Files of the folders `tests` by path."""
    cases: tuple[str, ...] = ()
    """Paths of the cases to run, in order."""
    old: Mapping[str, RevisionTexts] = field(default_factory=dict)
    """By table, what an upgrade begins with; empty where the cases are run as they are."""
    record: str = ""
    """A table whose first case is made up, run and answered as a text; then there are no `cases`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings that decide what a statement computes."""
    case_s: float = CASE_S

    def as_json(self) -> dict[str, Any]:
        """Return the request as a JSON object."""
        return asdict(self)


def request_from_json(body: Mapping[str, Any]) -> CaseRequest:
    """Read what `CaseRequest.as_json` wrote."""
    old = {table: RevisionTexts(**texts) for table, texts in body["old"].items()}
    return CaseRequest(**{**body, "cases": tuple(body["cases"]), "old": old})


def settings_of_meaning(conf: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return what a test takes over from a declared pool: settings of SQL, but none that lead to its tables or code.

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
    """`RowDifference.as_json`, None where there is none."""
    verdict: str = ""
    """An UpgradeVerdict, empty where no upgrade was tried."""
    detail: str = ""
    """Spark's own words, or the recorded text."""

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return asdict(self)


def result_from_json(body: Mapping[str, Any]) -> CaseResult:
    """Read what `CaseResult.as_json` wrote."""
    return CaseResult(**{**body, "outcome": CaseOutcome(body["outcome"])})
