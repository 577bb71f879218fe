"""Selects and reads the test cases of a project, and runs them in a child process with a separate Spark server."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.changes.classification import Change, unproven_change
from core.ipc.environment_paths import job_packages
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError
from core.model.evidence import Notice
from core.model.names import TableName
from core.model.problems import Problem, Severity
from core.model.table_formats import table_format
from core.project.manifest_head import MANIFEST_PATH, PLACES
from core.project.model import BrokenTable, Project, Table
from core.project.revision import RevisionTexts, revision_hash
from core.project_reader.paths import is_jar, jar_path, table_folder
from core.project_reader.revision_reader import read_revision, revision_of
from core.sql.python_jobs import python_job_of
from core.statement_tests.case import StatementCase
from core.statement_tests.case_reader import read_cases, refuse_unsafe
from core.statement_tests.case_writer import first_case_path
from core.statement_tests.function_cases import FunctionCases, function_cases, function_folders
from core.statement_tests.request import INSTALL_S, CaseRequest, CaseResult, settings_of_meaning
from core.statement_tests.upgrade import compatible_code, planned_change, shown_unsafe
from core.text.wording import counted, did_you_mean
from tui.agent_client import agent_process, os_processes
from tui.agent_client.spark_side_process import SparkSideProcess
from tui.project_folder.declaring_files import read_test_files
from tui.project_folder.environment_selection import has_ledger
from tui.project_folder.project_folder_reader import ProjectDeclaration
from tui.project_folder.user_named_files import write_new
from tui.services.environment_service import EnvironmentService, broken_references

RUNNER = "pipelines.statement_tests"

DEPLOYED = "deployed"
"""Word for the deployed revisions in the ledger, accepted in place of a git reference."""

START_S = 180.0
"""Time allowed for the start of Spark, in seconds, in addition to the time for the cases."""

END_S = 30.0


@dataclass(frozen=True, slots=True)
class SelectedCases:
    """The test cases to run, with the project files that they need."""

    cases: tuple[StatementCase, ...]
    chosen: frozenset[TableName]
    """The requested tables, whether or not they have test cases."""
    texts: Mapping[str, str]
    tests: Mapping[str, str]
    project: Project
    functions: FunctionCases = field(default_factory=FunctionCases)
    """The cases of functions, which are among `cases`, with the generated tables that run them."""
    not_run: tuple[TableName, ...] = ()
    """The tables that were left out although they have test cases, sorted by name."""

    @property
    def tables(self) -> Mapping[TableName, Table]:
        """The declared tables, without those whose files have errors, and the tables that test functions."""
        return {**self.project.tables, **self.functions.tables}

    def as_shown(self, result: CaseResult) -> CaseResult:
        """Return the result of a case with the function, as `name()`, and its file instead of what was generated."""
        shown = self.functions.shown.get(result.path)
        return replace(result, table=shown[0], path=shown[1]) if shown else result

    def label(self, doing: str) -> str:
        """Return what the child process does, with a function's name instead of the generated table."""
        labels = {case.label: self.functions.shown[case.path][0] for case in self.functions.cases}
        return labels.get(doing, doing)


@dataclass(frozen=True, slots=True)
class PlannedUpgrade:
    """The old SQL and YAML of the tables that have changed, and the planner's classification of each change."""

    old: Mapping[TableName, RevisionTexts]
    changes: Mapping[TableName, Change]
    compatible: Mapping[TableName, str] = field(default_factory=dict)
    """The results of `compatible_code`, by table."""


def select_cases(operations: EnvironmentService, words: Iterable[str], products: Iterable[str]) -> SelectedCases:
    """Read the test cases of tables given by name or product, and of functions given as `name()`.

    All test cases are read if no name and no product is given. Without names, tables are left out if files of theirs,
    or of a table that they read, have errors. Raises UsageError for an unknown name, and InvalidProject if a test case
    is invalid, or such a table was named.
    """
    declared = operations.projects.read_sound_tables()
    words, products = tuple(words), tuple(products)
    named = tuple(word for word in words if word.endswith("()"))
    functions = _function_cases(operations, declared, named) if named or not (words or products) else FunctionCases()
    tables = declared.project.tables
    unsound = {table.folder for table in tables.values() if _parents(table) & declared.project.broken.keys()}
    sound = {name: table for name, table in tables.items() if table.folder not in unsound}
    others = tuple(word for word in words if word not in named)
    chosen = _chosen(operations, declared, sound, others, products) if others or products or not named else set()
    tests = read_test_files(operations.place.folder, (table.case_folder for table in sound.values()))
    cases, problems = read_cases(tests, sound)
    mine = tuple(case for case in cases if case.table in chosen)
    if not mine and not named:
        # There may be test cases of tables that are left out.
        operations.projects.read()
    unsafe = [problem for name in {case.table for case in mine} for problem in refuse_unsafe(tables[name])]
    refuse_problems(f"the tests of {operations.place.folder}", (*problems, *functions.problems, *unsafe))
    return SelectedCases(
        cases=(*mine, *functions.cases),
        chosen=frozenset(chosen),
        texts={**declared.texts, **functions.texts},
        tests={**tests, **functions.tests},
        project=declared.project,
        functions=functions,
        not_run=() if words else _left_out_with_cases(operations, declared, unsound, products),
    )


def _left_out_with_cases(
    operations: EnvironmentService, declared: ProjectDeclaration, unsound: set[str], products: tuple[str, ...]
) -> tuple[TableName, ...]:
    """Return the tables, of all products or of some, that have test cases but errors in files that they need."""
    left_out: list[Table | BrokenTable] = [*declared.project.broken.values()]
    left_out += (table for table in declared.project.tables.values() if table.folder in unsound)
    folder = operations.place.folder
    return tuple(sorted(
        table.name for table in left_out
        if not (products and table.product not in products) and read_test_files(folder, (table.case_folder,))
    ))  # fmt: skip


def _function_cases(
    operations: EnvironmentService, declared: ProjectDeclaration, named: tuple[str, ...]
) -> FunctionCases:
    """Return the cases of functions, of all if none is named. Raises UsageError for an unknown name."""
    project, place = declared.project, operations.place
    if not project.functions and not named:
        return FunctionCases()
    known = {f"{each.name}()" for each in project.functions}
    for word in named:
        if word not in known:
            operations.projects.read()
            raise UsageError(f"there is no function {word}", remedy=did_you_mean(word, known) or "headgate inventory")
    tests = read_test_files(place.folder, function_folders(project.functions))
    wanted = tuple(each for each in project.functions if f"{each.name}()" in named or not named)
    found = function_cases(wanted, project, declared.texts, tests, environment=place.environment)
    missing = next((word for word in named if word not in {shown for shown, _ in found.shown.values()}), "")
    if missing and not found.problems:
        raise UsageError(f"{missing} has no test case", remedy=f"write functions/tests/{missing[:-2]}.yml")
    return found


def restricted(selected: SelectedCases, upgrade: PlannedUpgrade) -> SelectedCases:
    """Return the selection, reduced to the test cases of tables that the upgrade changes."""
    return replace(selected, cases=tuple(case for case in selected.cases if case.table in upgrade.old))


def refuse_nothing(selected: SelectedCases, words: Iterable[str]) -> None:
    """Raise UsageError if a table in `words` has no test case, or if no test case is selected at all."""
    tested = {case.table for case in selected.cases}
    without = [word for word in words if word in selected.tables and word not in tested]
    if without:
        table = selected.tables[TableName(without[0])]
        _refuse_external(table)
        raise UsageError(f"{without[0]} has no test case", remedy=f"headgate test init {without[0]} writes a first one")
    if not tested:
        raise UsageError("there is no test case", remedy="headgate test init TABLE writes a first one")


def _refuse_external(table: Table) -> None:
    if table.external:
        raise UsageError(f"{table.name} is external: it has no statement to test", remedy="name a table that has one")


def parquet_note(selected: SelectedCases) -> str:
    """Return a note about tables tested over Parquet instead of their declared format; empty if there are none."""
    tested = {case.table: selected.tables[case.table] for case in selected.cases}
    formats = {table: table_format(each.parsed_ddl.format) for table, each in tested.items()}
    other = sorted(table for table, format in formats.items() if format.data_files)
    if not other:
        return ""
    names = " and ".join(sorted({formats[table].name for table in other}))
    keyed = ", ".join(table for table in other if tested[table].settings.upserts)
    more = f"; rows before they are upserted by key: {keyed}" if keyed else ""
    return f"tried over parquet files, without what only {names} does: {', '.join(other)}{more}"


def session_note(selected: SelectedCases) -> str:
    """Return a note about jobs in Python that get the Spark session; empty if there are none."""
    tested = {case.table: selected.tables[case.table].dml for case in selected.cases}
    jobs = {table: python_job_of(dml.text) for table, dml in tested.items() if dml is not None}
    names = ", ".join(sorted(table for table, job in jobs.items() if job is not None and job.takes_spark))
    return f"what a job reads through its parameter spark is not part of a case: {names}" if names else ""


def request_of(
    operations: EnvironmentService, selected: SelectedCases, *, case_s: float, old: Mapping[TableName, RevisionTexts]
) -> CaseRequest:
    """Return the request that makes the child process run the selected test cases. `case_s` is the time per case.

    `old` contains the old SQL and YAML of upgraded tables.
    """
    names = {case.table for case in selected.cases}
    texts = _needed_texts(selected.texts, selected.tables, names, _reads_of(selected.project, old))
    return CaseRequest(
        texts=texts,
        tests={path: text for path, text in selected.tests.items() if _beside(path, selected.cases)},
        environment=operations.place.environment,
        cases=tuple(case.path for case in selected.cases),
        old={name: old[name] for name in sorted(names) if name in old},
        settings=_settings(operations, selected.project),
        case_s=case_s,
        packages=_packages(operations, selected.project),
        install_s=_install_s(selected.tables, names, old),
        jars=_jars(operations, selected.texts),
    )


def find_upgrade(operations: EnvironmentService, since: str) -> PlannedUpgrade:
    """Return the upgrade from a git commit, or from the last deployment (`DEPLOYED`), to the current files.

    Raises UsageError if `since` is no git reference.
    """
    project = operations.projects.read_sound_tables().project
    declared = {name: table for name, table in project.tables.items() if not table.external}
    old = {}
    for name, texts in _old_texts(operations, since).items():
        if name in declared and texts.dml.strip() and revision_hash(texts) != revision_of(declared[name]).hash:
            old[name] = texts
    changes, compatible = {}, {}
    for name, texts in old.items():
        before, now = read_revision(name, texts, project.defaults), revision_of(declared[name])
        if before is None:
            changes[name] = unproven_change(Notice.OLD_TEXT_UNREADABLE.of())
        else:
            changes[name] = planned_change(before, now, project.tables)
            compatible[name] = compatible_code(before, now, project.tables)
    return PlannedUpgrade(old, changes, compatible)


def report_failed_upgrades(
    operations: EnvironmentService, selected: SelectedCases, upgrade: PlannedUpgrade, results: Iterable[CaseResult]
) -> str:
    """Report failed upgrades to the agent, so that plans rebuild these tables.

    Returns the outcome as a sentence, which is empty if no upgrade failed.
    """
    shown = {}
    for each in results:
        change = upgrade.changes.get(TableName(each.table))
        if change is not None and (words := shown_unsafe(each, change)):
            shown[TableName(each.table)] = words
    for name, words in sorted(shown.items()):
        old, new = revision_hash(upgrade.old[name]), revision_of(selected.tables[name]).hash
        try:
            operations.client.call("upgrade_shown", {"table": name, "old": old, "new": new, "shown": words})
        except HeadgateError as error:
            return f"plans do not know of it, and would restart {name} on its checkpoint: {error.summary}"
    return f"plans rebuild {', '.join(sorted(shown))} from now on, for these texts" if shown else ""


def write_first_case(
    operations: EnvironmentService, word: str, environ: Mapping[str, str], *, case_s: float, tell: Callable[[str], None]
) -> str:
    """Write a table's first test case, with the rows that its statement produces today; return the file's path.

    The statement may take `case_s` seconds.
    Raises Refused if the file exists, UsageError if the table has no statement, and any error of the test run.
    """
    declared = operations.projects.read_sound_tables()
    tables = declared.project.tables
    name = _one(operations, word, declared)
    broken_references(declared).refuse_broken(_parents(tables[name]))
    table = tables[name]
    _refuse_external(table)
    path = first_case_path(table)
    place = Path(operations.place.folder, path)
    if os.path.lexists(place):
        raise Refused(f"{place} exists", remedy="rename it, or edit it; nothing was written")
    refuse_problems(f"the tests of {operations.place.folder}", tuple(refuse_unsafe(table)))
    texts = _needed_texts(declared.texts, tables, {table.name}, set())
    request = CaseRequest(
        texts,
        {},
        environment=operations.place.environment,
        record=table.name,
        case_s=case_s,
        settings=_settings(operations, declared.project),
        packages=_packages(operations, declared.project),
        install_s=_install_s(tables, {table.name}, {}),
        jars=_jars(operations, declared.texts),
    )
    recorded = ""
    for answer in run_child(request, environ):
        if "doing" in answer:
            tell(answer["doing"])
        recorded = answer.get("recorded", recorded)
    write_new(str(place), recorded)
    return path


def run_child(request: CaseRequest, environ: Mapping[str, str], *, trials: int = 1) -> Generator[dict[str, Any]]:
    """Yield the answers of a child process until it finishes, then remove its Spark server and its folder.

    The child runs `trials` trials of up to `request.case_s` seconds each. It is killed if it exceeds this time without
    reporting a timeout. Raises HeadgateError if the child fails.
    """
    try:
        folder = tempfile.mkdtemp(prefix="headgate-test-")
    except OSError as error:
        summary = f"no folder for the test can be made: {error.strerror}"
        raise HeadgateError(summary, remedy="free some disk space, or set TMPDIR") from error
    process = SparkSideProcess(RUNNER, folder, environ=environ, task="runs the tests", end_s=END_S)
    alarm = threading.Timer(START_S + request.install_s + (request.case_s + END_S) * trials, process.kill)
    alarm.start()
    try:
        process.send(request.as_json())
        yield from process.answers()
    finally:
        alarm.cancel()
        process.end()
        server = agent_process.find_server(folder, os.path.join(folder, "pool.json"))
        if server is not None:
            os_processes.end_process(server, patience_s=END_S)
        shutil.rmtree(folder, ignore_errors=True)


def _chosen(
    operations: EnvironmentService,
    declared: ProjectDeclaration,
    sound: Mapping[TableName, Table],
    words: tuple[str, ...],
    products: tuple[str, ...],
) -> set[TableName]:
    project, references = declared.project, broken_references(declared)
    sound_products = {table.product for table in project.tables.values()}
    known = sorted(sound_products | {table.product for table in project.broken.values()})
    for product in products:
        if product not in known:
            raise UsageError(f"{product!r} is not a product", remedy=did_you_mean(product, known) or ", ".join(known))
    named = set(operations.selected(words, declared=True))
    references.refuse_broken(named)
    for name in sorted(named - set(project.tables)):
        raise UsageError(f"{name} is not declared", remedy=did_you_mean(name, project.tables) or "headgate inventory")
    folders = {project.tables[name].folder for name in named}
    units = (table for table in project.tables.values() if table.folder in folders)
    references.refuse_broken({parent for table in units for parent in _parents(table)})
    if not (words or products):
        return set(sound)
    return named | {name for name, table in sound.items() if table.product in products}


def _parents(table: Table) -> frozenset[TableName]:
    return frozenset(read.table for read in table.parsed.reads) if table.parsed else frozenset()


def _one(operations: EnvironmentService, word: str, declared: ProjectDeclaration) -> TableName:
    (name,) = operations.selected([word.strip("+")], declared=True)
    tables = declared.project.tables
    broken_references(declared).refuse_broken([name])
    if name not in tables:
        raise UsageError(f"{name} is not declared", remedy=did_you_mean(name, tables) or "headgate inventory lists all")
    return name


def refuse_problems(what: str, problems: tuple[Problem, ...]) -> None:
    """Raise InvalidProject, with all Problems, if one of the Problems of test cases is an error."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        raise InvalidProject(
            f"{what} have {counted(len(errors), 'problem')}",
            remedy="correct what is listed; nothing was run",
            problems=tuple(problem.as_json() for problem in problems),
        )


def _settings(operations: EnvironmentService, project: Project) -> dict[str, str]:
    return settings_of_meaning(project.environments[operations.place.environment].pool.conf)


def _packages(operations: EnvironmentService, project: Project) -> str:
    """Return the folder with the environments of jobs; empty if the pool runs elsewhere, as for a start."""
    elsewhere = project.environments[operations.place.environment].pool.url
    return "" if elsewhere else job_packages(operations.place.where.home)


def _install_s(
    tables: Mapping[TableName, Table], names: Iterable[TableName], old: Mapping[TableName, RevisionTexts]
) -> float:
    """Return the time allowed for packages. The old texts of jobs may need other packages than the new ones."""
    lists = {tables[name].settings.requirements for name in names} - {()}
    olds = sum("requirements" in old[name].yml for name in names if name in old)
    return INSTALL_S * (len(lists) + olds)


def _beside(path: str, cases: Iterable[StatementCase]) -> bool:
    return any(os.path.dirname(case.path) == os.path.dirname(path) for case in cases)


def _needed_texts(
    texts: Mapping[str, str], tables: Mapping[TableName, Table], names: set[TableName], more: set[TableName]
) -> dict[str, str]:
    parents = {read.table for name in names if (parsed := tables[name].parsed) for read in parsed.reads}
    needed = [tables[name] for name in names | parents | more if name in tables]
    folders = {table.folder for table in needed}
    functions = {script.path: jar_path(script.path, script.text) for each in needed for _, script in each.functions}
    always = {MANIFEST_PATH, PLACES, *functions, *functions.values()}
    return {path: text for path, text in texts.items() if path in always or table_folder(path) in folders}


def _jars(operations: EnvironmentService, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the project's jars and of those that were deployed, by the hash of their content."""
    paths = [path for path in texts if is_jar(path)]
    store = os.path.join(operations.place.where.home, "jars")
    found = {name.removesuffix(".jar"): os.path.join(store, name) for name in _names_in(store)}
    if paths:
        from core.project_reader.jar_files import jar_of

        found |= {
            jar.sha256: os.path.join(operations.place.folder, path) for path in paths if (jar := jar_of(texts[path]))
        }
    return found


def _names_in(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _old_texts(operations: EnvironmentService, since: str) -> dict[TableName, RevisionTexts]:
    if since != DEPLOYED:
        return dict(operations.projects.since(since).before)
    if not has_ledger(operations.place):
        remedy = "name the commit of the old texts: headgate test --upgrade --since main"
        raise UsageError(f"nothing was ever deployed in {operations.place.title} on this machine", remedy=remedy)
    return {
        name: seen.deployed for name, seen in operations.planner_input().observed.items() if seen.deployed is not None
    }


def _reads_of(project: Project, old: Mapping[TableName, RevisionTexts]) -> set[TableName]:
    revisions = (read_revision(name, texts, project.defaults) for name, texts in old.items())
    return {read.table for each in revisions if each is not None and each.parsed for read in each.parsed.reads}
