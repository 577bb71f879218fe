"""Conversion of the contents of project files to a Project, or to all Problems at once; this module opens no files."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where, in_reading_order
from core.project.manifest_head import MANIFEST_PATH as MANIFEST
from core.project.manifest_head import PLACES
from core.project.model import (
    BrokenTable,
    Environment,
    Project,
    Script,
    Settings,
    Table,
    defaults_of,
)
from core.project.variables import REFERENCE, Variable
from core.project_reader.functions import calls_in_settings, has_functions, read_functions, unknown_calls
from core.project_reader.location_checks import has_only_known_jars
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.metadata_tables import with_metadata
from core.project_reader.name_collisions import collision_problems
from core.project_reader.parse_cache import ParseCache, missing_in_inputs
from core.project_reader.paths import ScriptFolder, is_jar, read_script_folders, table_folder, unreadable_files
from core.project_reader.pool_checks import check_pools
from core.project_reader.settings_checks import (
    check_keyed,
    check_outside_settings,
    check_queries,
    check_schema_tracking,
    check_topics_written,
    with_changes,
    with_schema_tracking,
)
from core.project_reader.substitution import SubstitutedSql, substitute_sql
from core.project_reader.table_consistency_checks import (
    check_tables,
    cycle_problems,
    shared_topic_problems,
    topic_loop_problems,
)
from core.project_reader.table_yml import SubstitutedSettings, read_settings, settings_as_text
from core.sql.statement import ParsedStatement, TableDdl
from core.text.escaping import escape_surrogates
from core.text.wording import did_you_mean

if TYPE_CHECKING:
    from core.project_reader.functions import FunctionFiles
    from core.project_reader.job_files import GeneratedJob
    from core.project_reader.places import Places

__all__ = ["read_project", "read_settings", "read_sound_tables", "read_tables", "settings_as_text"]


@dataclass(frozen=True, slots=True)
class _StatementFile:
    path: str
    folder: ScriptFolder
    parsed: ParsedStatement


@dataclass(slots=True)
class _ProjectDraft:
    texts: Mapping[str, str]
    """Contents by path. In SQL, values have replaced the variables."""
    parse_cache: ParseCache
    problems: list[Problem]
    variables: Mapping[str, Variable] = field(default_factory=dict)
    sql: Mapping[str, SubstitutedSql] = field(default_factory=dict)
    """The SQL files that use variables, by path."""
    yml: dict[str, SubstitutedSettings] = field(default_factory=dict)
    """The yml files that use variables, by path."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The unchanged contents of all files."""
    folders: dict[TableName, ScriptFolder] = field(default_factory=dict)
    ddl: dict[TableName, tuple[str, TableDdl]] = field(default_factory=dict)
    views: dict[TableName, str] = field(default_factory=dict)
    declared: set[TableName] = field(default_factory=set)
    """Names that have a DDL file, even an invalid one, so that a single mistake is reported only once."""
    statements: dict[TableName, _StatementFile] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Folders that contain a statement that could not be read."""
    unread: Set[str] = frozenset()
    """Paths of files that could not be read, whose contents are empty here."""
    all_folders: tuple[ScriptFolder, ...] = ()
    places: "Places | None" = None
    """Where generated texts were written; None if no text is generated."""
    metadata_by_product: Mapping[str, bool] = field(default_factory=dict)
    elsewhere: list[tuple[str, Problem]] = field(default_factory=list)
    """Pairs of a folder and a Problem that concerns it, although the file of the Problem is in another folder."""
    functions: "FunctionFiles | None" = None
    """The functions; None if no file declares one."""
    jobs: dict[str, "GeneratedJob"] = field(default_factory=dict)
    """The statements generated from jobs in Python, by the path of the job."""

    def report(self, problem: Problem, *folders: str) -> None:
        """Report a problem, which also concerns the script folders at the paths `folders`."""
        self.problems.append(problem)
        self.elsewhere += [(folder, problem) for folder in folders]


def read_project(
    texts: Mapping[str, str], parse_cache: ParseCache | None = None, *, environment: str | None = None
) -> tuple[Project | None, tuple[Problem, ...]]:
    """Read a project from its file contents; return the Project and all Problems.

    The Project is None if any Problem is an error. `texts` are the contents by relative path with forward slashes.
    `parse_cache` only saves time: a content that it contains is not parsed again, and new results are added to it.
    Variables have their values in `environment`, which is by default the project's default environment.
    """
    project, found = read_sound_tables(texts, parse_cache, environment=environment)
    return (None if any(map(_is_error, found)) else project), found


def read_sound_tables(
    texts: Mapping[str, str], parse_cache: ParseCache | None = None, *, environment: str | None = None
) -> tuple[Project | None, tuple[Problem, ...]]:
    """Read a project like `read_project`, but move the tables in folders with errors to `Project.broken`.

    The Project is None only if headgate.yml has errors, because such errors concern every table.
    """
    # A plan sends its paths to the agent as JSON, which must be UTF-8.
    problems: list[Problem] = [
        Problem("the name of this file is not UTF-8", "rename the file or its folder", Where(shown))
        for path in texts
        if (shown := escape_surrogates(path)) != path
    ]
    unread = unreadable_files(texts)
    problems += unread.values()
    texts = {path: "" if path in unread else text for path, text in texts.items()} if unread else texts
    manifest = read_manifest(texts.get(MANIFEST), problems)
    variables, parse_cache = manifest.variables_of(environment), parse_cache or ParseCache()
    draft = _draft(texts, variables, parse_cache, problems, unread=unread.keys())
    if draft.places is not None:
        draft.unread |= draft.places.unread
    tables = _read_tables(draft, manifest.defaults, manifest.metadata_by_product)
    if draft.functions is not None:
        _check_functions(draft, draft.functions, tables, certain=manifest.has_only_spark(environment))
    _check_products(manifest, draft)
    if draft.places is not None:
        _report_generated(draft.places, draft)
    if not (unread or (draft.places and draft.places.problems)):
        _warn_unused(manifest, draft)
    unreadable = {name for name in tables if draft.folders[name].path in draft.broken and name not in draft.statements}
    if draft.places is not None and (unread or any(not folders for folders, _ in draft.places.problems)):
        # A manifest whose table is unknown may write any of them.
        unreadable |= tables.keys() - draft.statements.keys()
    missing = partial(missing_in_inputs, tables=tables, parse_cache=draft.parse_cache)
    check_tables(
        tables,
        draft.declared,
        draft.views,
        problems,
        unreadable=unreadable,
        missing_in_inputs=missing,
        connectors={connector.name for connector in manifest.connectors},
        jars_known=has_only_known_jars(manifest.environment(environment)),
    )
    _check_cycles(tables, draft)
    _check_settings(tables, draft, unreadable, manifest, environment)
    problems += [*topic_loop_problems(tables), *shared_topic_problems(tables)]
    read_in = partial(_read_in, draft, manifest, tables)
    problems += collision_problems(manifest.environments, manifest.lines, tables, read_in)
    problems = [_as_written(problem, draft) for problem in problems]
    draft.elsewhere = [(folder, _as_written(problem, draft)) for folder, problem in draft.elsewhere]
    found = in_reading_order(problems)
    errors = tuple(filter(_is_error, found))
    located = in_reading_order(tuple(map(draft.places.of_file, found))) if draft.places else found
    if any(problem.where is None or problem.where.path == MANIFEST for problem in errors):
        return None, located
    project = _project(manifest, tables, draft)
    if errors:
        project = _without_broken(project, draft, errors)
    return (draft.places.of_files(project) if draft.places else project), located


def _check_settings(
    tables: Mapping[TableName, Table],
    draft: _ProjectDraft,
    unreadable: Set[TableName],
    manifest: Manifest,
    environment: str | None,
) -> None:
    yml = {name: _yml(name, draft.folders[name]) for name in tables}
    for check in (check_queries, check_keyed, check_schema_tracking, check_topics_written):
        check(tables, yml, draft.problems)
    if (here := manifest.environment(environment)) is not None:
        check_pools(tables, yml, here, draft.texts.get(MANIFEST, ""), draft.problems)
    # A table whose statement could not be read only seems to be external.
    readable = {name: table for name, table in tables.items() if name not in unreadable} if unreadable else tables
    check_outside_settings(readable, yml, draft.problems)
    if draft.jobs or any(
        each.inputs or each.requirements or each.state_compatible
        for each in (table.settings for table in readable.values())
    ):
        from core.project_reader.job_files import check_jobs

        check_jobs(readable, yml, draft.problems)


def _draft(
    texts: Mapping[str, str],
    variables: Mapping[str, Variable],
    parse_cache: ParseCache,
    problems: list[Problem],
    *,
    unread: Set[str] = frozenset(),
) -> _ProjectDraft:
    """Replace the variables and the calls of functions in SQL. A file in which one cannot be replaced is not parsed."""
    if any(map(is_jar, texts)):
        from core.project_reader.jar_files import with_jar_hashes

        texts = with_jar_hashes(texts)
    sql, wrong = {}, set(unread)
    for path in [path for path, text in texts.items() if "${" in text and path.endswith(".sql")]:
        before = len(problems)
        sql[path] = substitute_sql(texts[path], path, variables, problems)
        if len(problems) > before:
            wrong.add(path)
    replaced = {**texts, **{path: found.text for path, found in sql.items()}} if sql else texts
    functions = None
    if has_functions(texts):
        reported = {each.where.path: each for each in problems if each.where is not None and each.where.path in wrong}
        functions = read_functions(replaced, reported)
        replaced = {**replaced, **_without_calls(functions, wrong)}
        problems += functions.problems
    draft = _ProjectDraft(
        replaced, parse_cache, problems, variables, sql=sql, written=texts, unread=wrong, functions=functions
    )
    if PLACES in texts:
        from core.project_reader.places import read_places

        draft.places = read_places(texts[PLACES])
    return draft


def _report_generated(places: "Places", draft: _ProjectDraft) -> None:
    known = {folder.path for folder in draft.all_folders}
    for folders, problem in places.problems:
        draft.report(problem, *(folder for folder in folders if folder in known))


def _without_calls(functions: "FunctionFiles", wrong: set[str]) -> dict[str, str]:
    found = {}
    for path in [path for path in functions.texts if "/sql-scripts/dml." in path and path not in wrong]:
        before = len(functions.problems), len(functions.faults)
        found[path] = functions.replace_calls(path, functions.texts[path])
        if (len(functions.problems), len(functions.faults)) != before:
            wrong.add(path)
            functions.scripts.pop(path, None)
    return found


def _check_functions(
    draft: _ProjectDraft, functions: "FunctionFiles", tables: Mapping[TableName, Table], *, certain: bool
) -> None:
    folders = {folder.path for folder in draft.all_folders}
    draft.elsewhere += [
        (folder, problem) for path, problem in functions.faults if (folder := table_folder(path)) in folders
    ]
    yml = {name: _yml(name, draft.folders[name]) for name in tables}
    draft.problems += calls_in_settings(tables, functions, yml)
    draft.problems += unknown_calls(tables, functions, draft.written, certain=certain)


def with_values(texts: Mapping[str, str], variables: Mapping[str, Variable]) -> Mapping[str, str]:
    """Return file contents by path, with values in place of variables, and bodies in place of calls of functions."""
    return _draft(texts, variables, ParseCache(), []).texts


def _warn_unused(manifest: Manifest, draft: _ProjectDraft) -> None:
    if not manifest.variables:
        return
    used = {name for each in draft.sql.values() for name in each.names}
    used.update(name for each in draft.yml.values() for name in each.names)
    used.update(REFERENCE.findall(draft.texts[MANIFEST]))
    draft.problems += [
        Problem(f"no file uses the variable {name}", "remove it", each.where, name, severity=Severity.WARNING)
        for name, each in manifest.variables.items()
        if name not in used
    ]


def _as_written(problem: Problem, draft: _ProjectDraft) -> Problem:
    path = problem.where.path if problem.where else ""
    script = draft.functions.scripts.get(path) if draft.functions is not None else None
    problem = script.positions.of_file(problem) if script else problem
    found = draft.sql.get(path)
    return found.of_file(problem) if found else problem


def _check_products(manifest: Manifest, draft: _ProjectDraft) -> None:
    known = sorted({folder.product for folder in draft.all_folders if folder.product})
    for name, product in manifest.products.items():
        if name not in known:
            remedy = did_you_mean(name, known) or f"products: {', '.join(known)}"
            summary = f"no table has the product {name}"
            problem = Problem(summary, remedy, product.where, name, severity=Severity.WARNING)
            draft.problems.append(problem)


def _check_cycles(tables: Mapping[TableName, Table], draft: _ProjectDraft) -> None:
    found = cycle_problems(tables)
    draft.problems += [problem for problem, _ in found]
    acyclic = dict(tables)
    while found:
        for problem, cycle in found:
            draft.elsewhere += [(draft.folders[acyclic.pop(name).name].path, problem) for name in cycle]
        # A component that has several cycles is cut in several rounds.
        found = cycle_problems(acyclic)


def _is_error(problem: Problem) -> bool:
    return problem.severity is Severity.ERROR


def _without_broken(project: Project, draft: _ProjectDraft, errors: Sequence[Problem]) -> Project:
    by_folder: dict[str, list[Problem]] = {folder.path: [] for folder in draft.all_folders}
    stray: list[Problem] = []
    placed = {problem for _, problem in draft.elsewhere}
    for problem in errors:
        place = table_folder(problem.where.path) if problem.where else ""
        if place in by_folder:
            by_folder[place].append(problem)
        elif problem not in placed:
            stray.append(problem)
    for path, problem in draft.elsewhere:
        by_folder[path].append(problem)
    written = {(found.folder.path, name) for name, found in draft.statements.items()}
    broken: dict[TableName, BrokenTable] = {}
    for folder in draft.all_folders:
        if problems := in_reading_order(by_folder[folder.path]):
            for name in {*folder.ddl, *folder.dml, *(name for path, name in written if path == folder.path)}:
                before = broken[name].problems if name in broken else ()
                broken[name] = BrokenTable(
                    name=name,
                    product=folder.product,
                    layer=folder.layer,
                    unit=folder.unit,
                    folder=folder.path,
                    problems=(*before, *problems),
                )
    tables = {name: table for name, table in project.tables.items() if name not in broken}
    return replace(project, tables=tables, broken=dict(sorted(broken.items())), stray=tuple(stray))


def read_tables(
    texts: Mapping[str, str],
    defaults: Settings,
    parse_cache: ParseCache,
    variables: Mapping[str, Variable],
    metadata_by_product: Mapping[str, bool],
) -> dict[TableName, Table]:
    """Read the tables of some folders from their file contents, ignoring all Problems.

    A table with an invalid DDL is omitted. A table with an invalid statement is returned without the statement.
    """
    draft = _draft(texts, variables, parse_cache, [])
    tables = _read_tables(draft, defaults, metadata_by_product)
    return draft.places.of_tables(tables) if draft.places else tables


def _read_in(
    draft: _ProjectDraft,
    manifest: Manifest,
    tables: Mapping[TableName, Table],
    environment: Environment,
    changing: Iterable[Table],
) -> Mapping[TableName, Table]:
    """Return the tables, with the values of `environment` in the folders of `changing`.

    A folder in which the values are the same is not read again, and a table that cannot be read there is omitted.
    """
    values = {variable.name: variable.value for variable in environment.variables}
    folders = {table.folder for table in changing if any(values.get(name) != value for name, value in table.variables)}
    if not folders:
        return tables
    found = [folder for folder in draft.all_folders if folder.path in folders]
    paths = {path for each in found for files in (each.ddl, each.dml, each.yml) for path in files.values()}
    paths |= draft.functions.by_path.keys() if draft.functions is not None else set()
    texts = {path: draft.written[path] for path in paths}
    variables = manifest.variables_of(environment.name)
    read = read_tables(texts, manifest.defaults, draft.parse_cache, variables, manifest.metadata_by_product)
    return {name: table for name, table in tables.items() if table.folder not in folders} | read


def _read_tables(
    draft: _ProjectDraft, defaults: Settings, metadata_by_product: Mapping[str, bool]
) -> dict[TableName, Table]:
    draft.metadata_by_product = metadata_by_product
    # A mode that tables inherited here would take precedence over that of their product.
    defaults = replace(defaults, compatibility="")
    draft.all_folders = folders = read_script_folders(draft.texts, draft.problems)
    for folder in folders:
        _read_ddls(folder, draft)
    for folder in folders:
        _read_statements(folder, draft, defaults)
    if draft.jobs and draft.places is None:
        from core.project_reader.places import Places

        draft.places = Places({path: job.parts for path, job in draft.jobs.items()})
    tables = {name: _table(name, draft, defaults) for name in sorted(draft.ddl)}
    tables = with_metadata(tables, draft.parse_cache, draft.problems)
    return with_schema_tracking(with_changes(tables, tables), tables)


def _project(manifest: Manifest, tables: dict[TableName, Table], draft: _ProjectDraft) -> Project:
    return Project(
        id=manifest.id,
        name=manifest.name,
        default_env=manifest.default_env,
        environments={environment.name: environment for environment in manifest.environments},
        tables=tables,
        defaults=manifest.defaults,
        compatibility_by_product={
            name: each.compatibility for name, each in manifest.products.items() if each.compatibility is not None
        },
        metadata_by_product=manifest.metadata_by_product,
        functions=draft.functions.declared(draft.written) if draft.functions is not None else (),
    )


def _read_ddls(folder: ScriptFolder, draft: _ProjectDraft) -> None:
    for name, path in sorted(folder.ddl.items()):
        if name in draft.declared:
            first = draft.folders[name]
            draft.report(
                Problem(f"{name} is declared twice", f"keep one: the other is {first.ddl[name]}", Where(path), name),
                first.path,
            )
            continue
        draft.declared.add(name)
        draft.folders[name] = folder
        if path in draft.unread:
            continue
        view, ddl, problems = draft.parse_cache.ddl(draft.texts[path], path)
        if view is not None:
            draft.views[name] = path
            draft.problems.append(
                Problem(
                    f"{name} is declared as a view, which cannot be streamed",
                    "declare a table and fill it with a statement",
                    Where(path, view),
                    name,
                )
            )
            continue
        draft.problems.extend(problems)
        if ddl is None:
            continue
        if ddl.table != name:
            draft.problems.append(
                Problem(
                    f"{path.rpartition('/')[2]} declares {ddl.table}",
                    f"name the file ddl.{ddl.table}.sql, or create {name} in it",
                    Where(path, ddl.line),
                    name,
                )
            )
        draft.ddl[name] = (path, ddl)


def _read_statements(folder: ScriptFolder, draft: _ProjectDraft, defaults: Settings) -> None:
    for name, path in sorted(folder.dml.items()):
        if path in draft.unread:
            draft.broken.add(folder.path)
            continue
        settings = _settings(name, folder, draft, defaults)
        text = draft.texts[path]
        if path.endswith(".py"):
            job = _job(name, folder, draft, settings)
            if job is None:
                draft.broken.add(folder.path)
                continue
            draft.jobs[path], text = job, job.text
        statements, problems = draft.parse_cache.statements(
            text, path, every_table_streams=settings.every_table_streams
        )
        draft.problems.extend(problems)
        if any(problem.severity is Severity.ERROR for problem in problems):
            draft.broken.add(folder.path)
        elif not statements:
            draft.problems.append(
                Problem(
                    f"{path.rpartition('/')[2]} contains no statement",
                    f"write INSERT INTO {name} SELECT …",
                    Where(path),
                    name,
                )
            )
        if len(statements) == 1 and not problems and statements[0].writes != name:
            draft.problems.append(
                Problem(
                    f"{path.rpartition('/')[2]} writes {statements[0].writes}",
                    f"write INSERT INTO {name}, or name the file dml.{statements[0].writes}.sql",
                    Where(path, statements[0].line),
                    name,
                )
            )
        for statement in statements:
            if (
                statement.writes != name
                and _settings(statement.writes, folder, draft, defaults).reads != settings.reads
            ):
                draft.problems.append(
                    Problem(
                        f"{statement.writes} and {name} have different values of reads:, but their "
                        "statements are in one file",
                        f"write reads: {settings.reads} in its yml, or give it a dml file of its own",
                        Where(path, statement.line),
                        statement.writes,
                    )
                )
            _take_statement(_StatementFile(path, folder, statement), draft)


def _job(name: TableName, folder: ScriptFolder, draft: _ProjectDraft, settings: Settings) -> "GeneratedJob | None":
    from core.project_reader.job_files import JobCode, generated_job

    path = folder.dml[name]
    source = JobCode(name, draft.texts[path], path)
    yml = _yml(name, folder)
    lines = draft.texts[yml].splitlines() if yml else []
    line = next((number for number, each in enumerate(lines, start=1) if each.startswith("inputs:")), 0)
    return generated_job(source, settings, Where(yml or path, line), draft.problems)


def _take_statement(statement: _StatementFile, draft: _ProjectDraft) -> None:
    target, where = statement.parsed.writes, Where(statement.path, statement.parsed.line)
    if target not in draft.declared:
        near = did_you_mean(target, draft.declared)
        draft.problems.append(
            Problem(
                f"{target} has no DDL",
                near or f"write {statement.folder.path}/sql-scripts/ddl.{target}.sql",
                where,
                target,
            )
        )
    elif draft.folders[target].path != statement.folder.path:
        draft.report(
            Problem(
                f"{target} is written here and declared in {draft.folders[target].path}",
                "put the statement and the DDL of a table into the same folder",
                where,
                target,
            ),
            draft.folders[target].path,
        )
    if target in draft.statements:
        first = draft.statements[target]
        draft.report(
            Problem(
                f"{target} has two writers",
                f"keep one: the other is {Where(first.path, first.parsed.line)}",
                where,
                target,
            ),
            first.folder.path,
        )
        return
    draft.statements[target] = statement


def _table(name: TableName, draft: _ProjectDraft, defaults: Settings) -> Table:
    folder = draft.folders[name]
    path, ddl = draft.ddl[name]
    statement = draft.statements.get(name)
    yml = _yml(name, folder)
    dml = statement.path if statement else ""
    found = draft.yml.get(yml)
    called = draft.functions.scripts.get(dml) if draft.functions is not None else None
    sql = (path, dml, *(called.functions if called else ()))
    names = (
        {*_names(found), *(name for each in sql for name in _names(draft.sql.get(each)))} if draft.variables else set()
    )
    return Table(
        name=name,
        product=folder.product,
        layer=folder.layer,
        unit=folder.unit,
        folder=folder.path,
        ddl=_script(path, draft),
        parsed_ddl=ddl,
        dml=_script(dml, draft) if dml else None,
        parsed=statement.parsed if statement else None,
        settings=_settings(name, folder, draft, defaults),
        settings_text=draft.texts[yml] if yml else "",
        variables=tuple((each, draft.variables[each].value) for each in sorted(names & draft.variables.keys())),
        written_settings=found.written if found else (),
        manifest=draft.places.manifests.get(folder.path, "") if draft.places and statement else "",
        functions=draft.functions.named(called.functions, draft.written) if draft.functions and called else (),
    )


def _script(path: str, draft: _ProjectDraft) -> Script:
    if (job := draft.jobs.get(path)) is not None:
        return Script(path, job.text)
    changed = path in draft.sql or (draft.functions is not None and path in draft.functions.scripts)
    return Script(path, draft.texts[path], draft.written[path] if changed else None)


def _names(found: SubstitutedSql | SubstitutedSettings | None) -> Iterable[str]:
    return found.names if found is not None else ()


def _settings(name: str, folder: ScriptFolder, draft: _ProjectDraft, defaults: Settings) -> Settings:
    yml = _yml(name, folder)
    text = draft.texts[yml] if yml else ""
    if draft.metadata_by_product:
        defaults = defaults_of(folder.product, defaults, draft.metadata_by_product)
    if "${" not in text:
        return draft.parse_cache.settings(text, yml, defaults, draft.problems)
    found = draft.parse_cache.settings_with_variables(text, yml, defaults, draft.problems, draft.variables)
    draft.yml[yml] = found
    return found.settings


def _yml(name: str, folder: ScriptFolder) -> str:
    """Return the path of a table's own yml or, if it has none, of its folder's yml; empty if there is neither."""
    return folder.yml.get(TableName(name)) or folder.yml.get(folder.unit, "")
