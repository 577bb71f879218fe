"""Reads SQL from a file, git or stdin, with the files that belong to it: DDL, settings and headgate.yml."""

import posixpath
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.changes.fingerprint import fingerprint
from core.model.errors import InvalidProject, UsageError
from core.model.names import TableName
from core.model.problems import Problem, Severity
from core.project.manifest_head import MANIFEST_PATH as MANIFEST
from core.project.model import Pool, Script, Settings
from core.project.revision import Revision, RevisionTexts
from core.project.variables import REFERENCE, Variable
from core.project_reader.functions import read_functions
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.paths import FUNCTIONS_FOLDER, function_scope, jar_path
from core.project_reader.substitution import SubstitutedSql, substitute_sql
from core.project_reader.table_yml import read_settings
from core.sql.ddl_reader import read_ddl
from core.sql.metadata_columns import declares_metadata, with_metadata_columns
from core.sql.statement import Column, ParsedStatement, TableDdl
from core.sql.statement_reader import read_any, read_statements
from core.text.wording import counted
from tui.project_folder.declaring_files import read_jar
from tui.project_folder.git_objects import file_at, run_git

STDIN = "-"


@dataclass(frozen=True, slots=True)
class SqlSource:
    """SQL with its name and path, and functions that read the files around it."""

    name: str
    """The source as the user named it: a file, `stdin`, or `REV:path`."""
    path: str
    """Path of the SQL file, without the revision and with forward slashes."""
    text: str
    read_neighbour: Callable[[str], str | None] = field(repr=False)
    """Returns the content of a file at a path in the same file system or revision; None if it does not exist."""
    ddl_below: Callable[[str], Mapping[str, str]] = field(repr=False, default=lambda folder: {})
    """Returns the paths of the DDL files below a folder, by table.

    For SQL from git, returns all DDL files of the revision.
    """
    functions_for: Callable[[str], Sequence[str]] = field(repr=False, default=lambda folder: ())
    """Returns the paths of function files; at least those that SQL in a folder can call."""
    read_jar: Callable[[str], bytes] = field(repr=False, default=lambda path: b"")
    """Returns the content of a jar at a path in the same file system or revision; empty if it cannot be read."""


def open_source(name: str, cwd: str) -> SqlSource:
    """Read SQL from a file, from git (`REV:path`, if there is no such file) or stdin (`-`).

    Raises UsageError if there is nothing to read.
    """
    if name == STDIN:
        return SqlSource("stdin", "stdin", _decoded(sys.stdin.buffer.read(), "stdin"), lambda path: None)
    file = Path(cwd, name)
    if name.lower().endswith((".yaml", ".yml")):
        raise UsageError(f"{name} is YAML, not SQL", remedy="headgate plan reports the problems of a manifest")
    if name.lower().endswith(".py"):
        raise UsageError(f"{name} is Python, not SQL", remedy="headgate plan shows what an edit of it changes")
    if file.is_file():
        text = _decoded(_read(file), name)
        return SqlSource(
            name,
            file.as_posix(),
            text,
            _from_folder,
            _ddl_of_folder,
            functions_for=_functions_of_folder,
            read_jar=_jar_in_folder,
        )
    revision, colon, path = name.partition(":")
    if colon and revision and not revision.startswith("-"):
        text = _from_git(cwd, revision, path)
        return SqlSource(
            name,
            path,
            text,
            read_neighbour=lambda other: _or_none(cwd, revision, other),
            ddl_below=lambda _: _by_table(_paths_in_git(cwd, revision)),
            functions_for=lambda _: _paths_in_git(cwd, revision),
            read_jar=lambda other: file_at(cwd, revision, other),
        )
    raise UsageError(f"{name} is not a file", remedy="give a file of SQL, - for stdin, or REV:path for one in git")


def nearest_manifest(source: SqlSource) -> Manifest | None:
    """Read the nearest headgate.yml above a source; None if there is no valid one."""
    text = source.read_neighbour(posixpath.join(_project_of(source) or "", MANIFEST))
    if text is None:
        return None
    problems: list[Problem] = []
    manifest = read_manifest(text, problems)
    return None if any(problem.severity is Severity.ERROR for problem in problems) else manifest


def declared_pool(source: SqlSource, environment: str | None) -> Pool | None:
    """Return the pool that the source's project declares for an environment; None if there is none."""
    manifest = nearest_manifest(source)
    if manifest is None:
        return None
    wanted = environment or manifest.default_env
    return next((each.pool for each in manifest.environments if each.name == wanted), None)


def read_revisions(source: SqlSource, environment: str | None) -> tuple[dict[TableName, Revision], tuple[Problem, ...]]:
    """Read the statements of a source with their DDL and settings. Returns revisions by table, and all Problems.

    `ddl.<table>.sql` is read from the source's own folder. The settings are read from `<table>.yml`, or else from a yml
    file named after the folder that contains it; if the source is in a folder called `sql-scripts`, both belong in the
    parent of that folder.
    """
    manifest = nearest_manifest(source)
    defaults = manifest.defaults if manifest else Settings()
    variables = _variables(source, environment)
    yml = _first_settings(source, defaults, variables)
    problems: list[Problem] = []
    sql = _read_sql(source, variables, problems)
    if problems:
        return {}, tuple(problems)
    statements, wrong = read_statements(sql.text, source.name, every_table_streams=yml.every_table_streams)
    problems += (sql.of_file(problem) for problem in wrong)
    pool = declared_pool(source, environment)
    found: dict[TableName, Revision] = {}
    for parsed in statements:
        written = _texts(source, parsed.writes)
        place = f"ddl.{parsed.writes}.sql next to {source.name}"
        declaring = substitute_sql(written.ddl, place, variables, problems)
        ddl = TableDdl(parsed.writes, (), "")
        settings_place = f"{parsed.writes}.yml next to {source.name}"
        settings = read_settings(written.yml, settings_place, defaults, problems, variables)
        text = declaring.text
        if written.ddl:
            declared, wrong = read_ddl(text, place)
            problems += (declaring.of_file(problem) for problem in wrong)
            ddl = declared or ddl
            if declared is not None and settings.metadata and not declares_metadata(declared):
                text = with_metadata_columns(text)
                ddl = read_ddl(text, place)[0] or ddl
        used = {*sql.names, *declaring.names, *REFERENCE.findall(written.yml)} & variables.keys()
        texts = RevisionTexts(text, sql.text, written.yml)
        if used or sql.functions:
            values = tuple((n, variables[n].value) for n in sorted(used))
            written = replace(written, functions=tuple((name, each.as_written) for name, each in sql.functions))
            functions = tuple((name, each.text) for name, each in sql.functions)
            texts = replace(texts, variables=values, written=written, functions=functions)
        parents = _parents(source, parsed, variables)
        found[parsed.writes] = Revision(
            parsed.writes, texts, parsed, ddl, settings=settings, pool=pool, parents=parents
        )
    return found, tuple(problems)


def in_one_place(old: SqlSource, new: SqlSource) -> tuple[SqlSource, SqlSource, SqlSource | None]:
    """If only one of two sources has a DDL in its folder, let the other source use the same files.

    Returns both sources, and the original of the source without a DDL (None if both are unchanged). A source without a
    DDL is assumed to be a copy outside a project, whose settings are unknown rather than removed.
    """
    declared = [_has_ddl(source) for source in (old, new)]
    if declared == [True, False]:
        return old, replace(old, name=new.name, text=new.text), new
    if declared == [False, True]:
        return replace(new, name=old.name, text=old.text), new, old
    return old, new, None


def with_comparable_columns(
    old: Mapping[TableName, Revision], new: Mapping[TableName, Revision], *, declared: bool
) -> tuple[dict[TableName, Revision], dict[TableName, Revision]]:
    """Replace all declared columns with the columns of the SELECTs, so that `old` and `new` can be compared.

    With `declared`, the revisions are returned unchanged if all of them have a DDL.
    """
    if declared and all(each.texts.ddl for each in (*old.values(), *new.values())):
        return dict(old), dict(new)
    before, after = ({table: _implied(each) for table, each in side.items()} for side in (old, new))
    return before, after


def parse_statements(
    source: SqlSource, reads: str | None, environment: str | None
) -> tuple[tuple[ParsedStatement, ...], tuple[Problem, ...]]:
    """Parse the statements of a source with an environment's variables. Returns them with all Problems.

    `reads` (`stream` or `batch`) determines how tables without STREAM are read. By default, the settings decide.
    """
    manifest = nearest_manifest(source) if reads is None else None
    variables = _variables(source, environment)
    wanted = reads or _first_settings(source, manifest.defaults if manifest else Settings(), variables).reads
    problems: list[Problem] = []
    sql = _read_sql(source, variables, problems)
    if problems:
        return (), tuple(problems)
    found, wrong = read_any(sql.text, source.name, every_table_streams=wanted == "stream")
    return found, tuple(map(sql.of_file, wrong))


def fingerprints(
    source: SqlSource, found: Sequence[ParsedStatement], environment: str | None
) -> list[dict[str, str | None]]:
    """Return each statement's hashes as JSON. A hash is null if a file that it needs is missing."""
    pool, variables = declared_pool(source, environment), _variables(source, environment)
    hashes = []
    for parsed in found:
        texts = _texts(source, parsed.writes)
        dml = _read_sql(source, variables, []).text
        texts = replace(texts, ddl=_with_values(texts.ddl, variables), dml=dml)
        ddl = read_ddl(texts.ddl, "")[0] if texts.ddl else None
        hashes.append(fingerprint(texts, parsed, ddl, runs_on=pool).as_json())
    return hashes


def refuse_problems(name: str, problems: Sequence[Problem]) -> None:
    """Raise InvalidProject with all Problems if one of them is an error."""
    wrong = [problem for problem in problems if problem.severity is Severity.ERROR]
    if wrong:
        raise InvalidProject(
            f"{name} has {counted(len(wrong), 'problem')}",
            remedy="correct what is listed",
            problems=tuple(problem.as_json() for problem in problems),
        )


@dataclass(frozen=True, slots=True)
class _ReadSql:
    """SQL with values in place of variables, and bodies in place of calls of functions."""

    text: str
    names: frozenset[str]
    """The variables that SQL and functions use."""
    functions: tuple[tuple[str, Script], ...]
    positions: tuple[SubstitutedSql, ...]
    """The replacements, from the last to the first."""

    def of_file(self, problem: Problem) -> Problem:
        """Return a Problem about the text with its position in the source."""
        for each in self.positions:
            problem = each.of_file(problem)
        return problem


def _read_sql(source: SqlSource, variables: Mapping[str, Variable], problems: list[Problem]) -> _ReadSql:
    """Replace the variables and the calls of functions in a source; mistakes are added to `problems`."""
    sql = substitute_sql(source.text, source.name, variables, problems)
    folder = _project_of(source)
    prefix = f"{folder}/" if folder else ""
    paths = source.functions_for(posixpath.dirname(source.path)) if folder is not None else ()
    relative = (
        path.removeprefix(prefix) for path in paths if path.startswith(prefix) and path.endswith((".sql", ".py"))
    )
    written = {
        path: source.read_neighbour(prefix + path) or "" for path in relative if function_scope(path) is not None
    }
    if not written or problems:
        return _ReadSql(sql.text, sql.names, (), (sql,))
    written = _with_jars(written, paths, prefix, source)
    in_sql = {path: text for path, text in written.items() if path.endswith(".sql")}
    values = {path: substitute_sql(text, path, variables, problems) for path, text in in_sql.items()}
    files = read_functions({**written, **{path: each.text for path, each in values.items()}}, {})
    files.problems.clear()
    path = source.path.removeprefix(prefix)
    text = files.replace_calls(path, sql.text)
    wrong = (*files.problems, *(problem for _, problem in files.faults))
    problems += (replace(each, where=replace(each.where, path=source.name)) if each.where and each.where.path == path
                 else each for each in wrong)  # fmt: skip
    if path not in files.scripts:
        return _ReadSql(text, sql.names, (), (sql,))
    script = files.scripts[path]
    names = sql.names.union(*(values[each].names for each in script.functions if each in values))
    return _ReadSql(text, names, files.named(script.functions, written), (script.positions, sql))


def _with_jars(written: dict[str, str], paths: Sequence[str], prefix: str, source: SqlSource) -> dict[str, str]:
    """Return the functions of a source with the descriptions of their jars."""
    named = {jar_path(path, text) for path, text in written.items() if path.endswith(".sql")}
    jars = [path for path in (each.removeprefix(prefix) for each in paths) if path in named]
    if not jars:
        return written
    from core.project_reader.jar_files import classes_in, describe_jar, with_jar_hashes

    for path in jars:
        file = posixpath.basename(path)
        written[path] = describe_jar(source.read_jar(prefix + path), file, classes_in(written, path))
    return dict(with_jar_hashes(written))


def _jar_in_folder(path: str) -> bytes:
    try:
        return read_jar(path)[0]
    except OSError:
        return b""


def _variables(source: SqlSource, environment: str | None) -> dict[str, Variable]:
    text = source.read_neighbour(posixpath.join(_project_of(source) or "", MANIFEST))
    return read_manifest(text, []).variables_of(environment) if text else {}


def _with_values(sql: str, variables: Mapping[str, Variable]) -> str:
    return substitute_sql(sql, "", variables, []).text


def _first_settings(source: SqlSource, defaults: Settings, variables: Mapping[str, Variable]) -> Settings:
    # The settings of the first statement determine how the whole source is parsed.
    text = _read_sql(source, variables, []).text
    written = next((parsed.writes for parsed in read_any(text, source.name)[0]), None)
    return read_settings(_texts(source, written).yml, "", defaults, [], variables) if written else defaults


def _has_ddl(source: SqlSource) -> bool:
    text = _with_values(source.text, _variables(source, None))
    return any(_texts(source, parsed.writes).ddl for parsed in read_any(text, source.name)[0])


def _implied(revision: Revision) -> Revision:
    """Return a revision whose DDL has the columns of its SELECT, without types.

    If the SELECT has a `*`, the DDL has no columns.
    """
    columns = revision.parsed.columns if revision.parsed else ()
    hidden = any(column.name == "*" for column in columns)
    named = () if hidden else tuple(Column(column.name, "") for column in columns)
    return replace(revision, ddl=TableDdl(revision.table, named, ""))


def _project_of(source: SqlSource) -> str | None:
    """Return the nearest folder above a source with a headgate.yml; None if there is none.

    The path is empty for the top of a repository.
    """
    folder = posixpath.dirname(source.path)
    while source.read_neighbour(posixpath.join(folder, MANIFEST)) is None:
        parent = posixpath.dirname(folder)
        if parent == folder or not folder:
            return None
        folder = parent
    return folder


def _parents(
    source: SqlSource, parsed: ParsedStatement, variables: Mapping[str, Variable]
) -> dict[TableName, tuple[str, ...]]:
    folder = _project_of(source)
    paths = source.ddl_below(folder) if folder is not None else {}
    found: dict[TableName, tuple[str, ...]] = {}
    for table in {read.table for read in parsed.reads if read.table in paths}:
        text = source.read_neighbour(paths[table]) or ""
        ddl, _ = read_ddl(_with_values(text, variables), paths[table])
        if ddl is not None:
            found[table] = tuple(column.name.lower() for column in ddl.columns)
    return found


def _ddl_of_folder(folder: str) -> dict[str, str]:
    return _by_table(path.as_posix() for path in Path(folder, "pipelines").rglob("ddl.*.sql"))


def _functions_of_folder(folder: str) -> list[str]:
    place = Path(folder)
    folders = [each / FUNCTIONS_FOLDER for each in (place, *place.parents)]
    return [path.as_posix() for each in folders for ending in ("sql", "py", "jar") for path in each.glob(f"*.{ending}")]


def _paths_in_git(cwd: str, revision: str) -> list[str]:
    words = ("-r", "--full-tree", "--name-only", "-z", "--end-of-options", revision)
    _, listed, _ = run_git(cwd, "ls-tree", *words)
    return listed.decode("utf-8", "replace").split("\0")


def _by_table(paths: Iterable[str]) -> dict[str, str]:
    names = {path: posixpath.basename(path) for path in paths}
    return {
        name.removeprefix("ddl.").removesuffix(".sql").lower(): path
        for path, name in sorted(names.items())
        if name.startswith("ddl.") and name.endswith(".sql")
    }


def _texts(source: SqlSource, table: TableName) -> RevisionTexts:
    folder = posixpath.dirname(source.path)
    above = posixpath.dirname(folder) if posixpath.basename(folder) == "sql-scripts" else folder
    ddl = source.read_neighbour(posixpath.join(folder, f"ddl.{table}.sql"))
    named = (source.read_neighbour(posixpath.join(above, f"{name}.yml")) for name in (table, posixpath.basename(above)))
    yml = next((text for text in named if text is not None), None)
    return RevisionTexts(ddl or "", source.text, yml or "")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", remedy="make it readable") from error


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text", remedy="save it as UTF-8") from error


def _from_folder(path: str) -> str | None:
    file = Path(path)
    return _decoded(_read(file), path) if file.is_file() else None


def _from_git(cwd: str, revision: str, path: str) -> str:
    return _decoded(file_at(cwd, revision, path), f"{revision}:{path}")


def _or_none(cwd: str, revision: str, path: str) -> str | None:
    try:
        return _from_git(cwd, revision, path)
    except UsageError:
        return None
