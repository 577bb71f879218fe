"""Problems: mistakes in a user's input, with a location and a remedy; they are collected, not raised."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a Problem; only an error blocks a plan."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Where:
    """A location in a file; lines and columns count from 1, and line 0 means the whole file."""

    path: str
    """Path relative to the project folder, with forward slashes."""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = self.path
        if self.line:
            place += f":{self.line}"
        if self.column:
            place += f":{self.column}"
        return place


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the input; `summary` is a sentence without a full stop."""

    summary: str
    remedy: str
    where: Where | None = None
    subject: str = ""
    """The table, key or construct that the Problem is about."""
    detail: str = ""
    """The surrounding text, Spark's error class, or the tables of a cycle in order."""
    severity: Severity = Severity.ERROR

    def as_json(self) -> dict[str, object]:
        """Return the Problem as a JSON object; file, line and column are null if unknown."""
        return {
            "severity": str(self.severity),
            "subject": self.subject,
            "summary": self.summary,
            "detail": self.detail,
            "file": self.where.path if self.where else None,
            "line": self.where.line or None if self.where else None,
            "column": self.where.column or None if self.where else None,
            "remedy": self.remedy,
        }


def in_reading_order(problems: list[Problem] | tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the Problems without duplicates, sorted by file, line and summary, so that output is deterministic."""
    return tuple(sorted(set(problems), key=_place))


def _place(problem: Problem) -> tuple[str, int, int, str, str, str]:
    where = problem.where or Where("")
    return where.path, where.line, where.column, problem.subject, problem.summary, problem.detail
