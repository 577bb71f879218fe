"""Jobs in Python: their code in `job.<table>.py` or a manifest, and the settings of their tables, as statements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.model.errors import InvalidProject
from core.model.names import TableName
from core.model.problems import Problem, Where
from core.model.table_formats import table_format
from core.project.model import Settings, Table, TextPart
from core.sql.python_jobs import (
    EACH_BATCH,
    FIRST_CODE_LINE,
    CodeFault,
    JobInput,
    JobSignature,
    PythonJob,
    is_python_job,
    job_text,
    python_job_of,
    read_signature,
)
from core.text.wording import did_you_mean

_REMEDY = "write inputs: {orders: STREAM orders}, with one table for each parameter"


@dataclass(frozen=True, slots=True)
class JobCode:
    """Code of a job, as written in a file."""

    table: TableName
    """The table that the job writes, and the name of its function."""
    code: str
    path: str
    """The file, relative to the project folder."""
    line: int = 1
    """The line of the file in which the code begins."""
    follows: bool = True
    """Whether the lines of the file follow those of the code."""

    def at(self, line: int) -> Where:
        """Return where the file has a line of the code."""
        return Where(self.path, self.line + line - 1 if self.follows else self.line)


@dataclass(frozen=True, slots=True)
class GeneratedJob:
    """The text of a DML script that was generated from a job."""

    text: str
    parts: tuple[TextPart, ...]
    """Where its lines were written."""


def generated_job(
    source: JobCode, settings: Settings, at_settings: Where, problems: list[Problem]
) -> GeneratedJob | None:
    """Return the statement of a job; None if a mistake was added to `problems`.

    `at_settings` is where mistakes in the settings are reported. A text that was generated before is returned as it is.
    """
    if is_python_job(source.code):
        return GeneratedJob(source.code, (TextPart(1, source.path, source.line, follows=source.follows),))
    try:
        signature = read_signature(source.code, source.table)
    except CodeFault as fault:
        problems.append(Problem(fault.summary, fault.remedy, source.at(fault.line), source.table))
        return None
    wrong = tuple(_wrong_inputs(signature, settings, source, at_settings))
    problems += wrong
    if wrong:
        return None
    given = dict(settings.inputs)
    inputs = tuple(JobInput(name, given.get(name, f"STREAM {name}")) for name in signature.parameters)
    text = job_text(source.table, PythonJob(source.table, inputs, source.code, settings.requirements))
    head = TextPart(1, source.path, source.at(signature.line).line, follows=False)
    code = TextPart(FIRST_CODE_LINE, source.path, source.line, follows=source.follows)
    return GeneratedJob(text, (head, code))


def _wrong_inputs(
    signature: JobSignature, settings: Settings, source: JobCode, at_settings: Where
) -> Iterator[Problem]:
    for name, sql in settings.inputs:
        if name not in signature.parameters:
            near = did_you_mean(name, signature.parameters) or f"give {source.table} such a parameter, or remove it"
            summary = f"inputs has {name}, which is no parameter of the function {source.table}"
            yield Problem(summary, near, at_settings, name)
        elif not _is_one_input(source.table, name, sql):
            yield Problem(f"the input {name} must be one table, not {sql}", _REMEDY, at_settings, name)


def _is_one_input(table: TableName, name: str, sql: str) -> bool:
    if any(mark in sql for mark in ("--", "/*", ";", "\n")):
        return False
    wanted = (JobInput(name, sql),)
    try:
        read = python_job_of(job_text(table, PythonJob(table, wanted, "")))
    except InvalidProject:
        return False
    return read is not None and read.inputs == wanted


def check_jobs(tables: Mapping[TableName, Table], yml: Mapping[TableName, str], problems: list[Problem]) -> None:
    """Report settings of jobs in tables without one, and jobs whose rows cannot be written as they demand.

    `yml` contains the path of each table's yml file.
    """
    for table in tables.values():
        settings = table.settings
        if table.parsed is not None and table.parsed.in_python:
            _check_each_batch(table, problems)
        elif settings.inputs or settings.requirements or settings.state_compatible:
            key = "inputs" if settings.inputs else "requirements" if settings.requirements else "state_compatible"
            summary = f"{table.name} has {key}, and no job in Python"
            remedy = f"write sql-scripts/job.{table.name}.py, or remove {key}"
            problems.append(Problem(summary, remedy, Where(yml.get(table.name, "")), key))


def _check_each_batch(table: Table, problems: list[Problem]) -> None:
    assert table.dml is not None, "a job is a statement"
    if EACH_BATCH not in table.dml.text or (wrong := _unfit_for_batches(table)) is None:
        return
    job = python_job_of(table.dml.text)
    if job is not None and job.writes_batches:
        line = FIRST_CODE_LINE + read_signature(job.code, job.function).each_batch_line - 1
        where = Where(table.dml.path, line)
        summary, remedy = wrong
        problems.append(Problem(summary, remedy, where, table.name))


def _unfit_for_batches(table: Table) -> tuple[str, str] | None:
    """Return summary and remedy of what keeps `each_batch` from writing a table; None if nothing does."""
    if not table_format(table.parsed_ddl.format).transaction_log:
        summary = f"{table.name} is {table.parsed_ddl.format}, and {EACH_BATCH} needs a Delta table"
        return summary, "write USING delta in its DDL: only the log of a Delta table shows which batches it has"
    setting = f"mode: {table.settings.mode}" if table.settings.upserts else "metadata: true"
    if table.settings.upserts or table.settings.metadata:
        return f"{table.name} has {setting}, with which {EACH_BATCH} cannot write", f"remove {setting}, or {EACH_BATCH}"
    return None
