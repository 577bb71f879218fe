"""Formats, as a sentence and as JSON, what an answer omits because of errors in the project's files."""

from typing import Any

from core.project.model import Project
from core.text.wording import counted


def left_out_words(project: Project) -> str:
    """Return a sentence on the tables that are left out; empty if no file has errors."""
    problems = len(project.errors())
    if not problems:
        return ""
    tables = f"{counted(len(project.broken), 'table')} left out: " if project.broken else ""
    return f"{tables}{counted(problems, 'problem')} in files; headgate plan --all lists them"


def left_out_as_json(project: Project) -> dict[str, Any]:
    """Return `{"tables": [name], "problems": number}`: the tables left out, and the errors in the project's files."""
    return {"tables": list(project.broken), "problems": len(project.errors())}
