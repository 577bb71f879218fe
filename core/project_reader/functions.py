"""The functions of a project, each in `functions/<name>.sql` or `.py`, and the replacement of their calls.

A `functions` folder is that of the project, or lies in any folder below `pipelines`, whose tables alone see it. The
nearest function of a name applies. Calls are replaced when a project is read, as variables are, so a deployed text
contains the bodies with which it was deployed, or names that contain a hash of Python code or of a jar, whatever the
files say later. Without functions, nothing here is called, and the SQL parser is not imported.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.model.names import TableName
from core.model.problems import Problem, Severity, Where
from core.project.model import DeclaredFunction, Script, Table
from core.project.revision import RevisionTexts
from core.project_reader.paths import FUNCTIONS_FOLDER, TESTS_FOLDER, function_scope, is_jar, table_folder
from core.project_reader.substitution import SubstitutedSql
from core.text.wording import did_you_mean

if TYPE_CHECKING:
    from core.sql.function_calls import SqlFunction
    from core.sql.function_reader import DraftFunction

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}\Z")
_IN_YAML = "a function is declared in SQL or Python"
_NOT_SUPPORTED = {"yml": _IN_YAML, "yaml": _IN_YAML}


@dataclass(slots=True)
class _Function:
    path: str
    scope: str
    name: str
    line: int = 0
    """The line that declares the name; 0 if the file cannot be read."""
    draft: "DraftFunction | None" = None
    """The function as written; None if it is written in Python, or is of a jar."""
    sql: "SqlFunction | None" = None
    """None if the function, or a function that it calls, is invalid."""
    uses: dict[str, "_Function"] = field(default_factory=dict)
    """All functions that the body calls, directly or not, by path."""
    fault: Problem | None = None
    """The error that makes the function invalid."""
    jar: tuple[str, str] = ("", "")
    """Path and hash of the jar that contains its class; empty for functions in SQL and Python."""


@dataclass(slots=True)
class ScriptWithFunctions:
    """An SQL file in which calls have been replaced."""

    positions: SubstitutedSql
    functions: tuple[str, ...]
    """Paths of the functions that the file uses, directly or not, sorted."""


@dataclass(slots=True)
class FunctionFiles:
    """The functions that a project's files declare."""

    texts: Mapping[str, str]
    """Contents by path, with values in place of variables."""
    by_path: dict[str, _Function] = field(default_factory=dict)
    """The functions whose name is known, sorted by path; some are invalid."""
    problems: list[Problem] = field(default_factory=list)
    scripts: dict[str, ScriptWithFunctions] = field(default_factory=dict)
    """The files with calls, by path."""
    faults: list[tuple[str, Problem]] = field(default_factory=list)
    """The path of each file that calls an invalid function, and the function's error."""
    _visible: dict[str, dict[str, _Function]] = field(default_factory=dict)

    def visible(self, folder: str) -> Mapping[str, _Function]:
        """Return the functions that a table in a folder can call, by name."""
        if folder not in self._visible:
            inside = (each for each in self.by_path.values() if f"{folder}/".startswith(f"{each.scope}/".lstrip("/")))
            self._visible[folder] = {each.name: each for each in sorted(inside, key=lambda one: len(one.scope))}
        return self._visible[folder]

    def replace_calls(self, path: str, text: str) -> str:
        """Return an SQL file of a table with its calls replaced. A mistake is added to `problems`."""
        from core.sql.function_calls import called_names, calls_one_of, replace_calls
        from core.sql.python_jobs import is_python_job
        from core.sql.registered_functions import REGISTERED
        from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

        if is_python_job(text):
            return text
        visible = self.visible(table_folder(path))
        # The deployed texts of a table, which an undo declares, may have registered names already.
        registered = {found["function"]: f"{found[0]}(" for found in REGISTERED.finditer(text)}
        if not visible or not (registered or calls_one_of(tuple(visible)).search(text)):
            return text
        source = open_sql(text, path)
        try:
            tokens = tokens_of(source)
            sound = {name: each.sql for name, each in visible.items() if each.sql is not None}
            found = replace_calls(source.text, tokens, sound)
        except SqlDiagnostic:
            # Whatever parses the text reports this.
            return text
        self.problems += map(source.problem, found.wrong)
        called = {name for name, _ in called_names(tokens, in_from=True)}
        faults = (visible[name].fault for name in visible if name in called)
        self.faults += [(path, fault) for fault in faults if fault is not None]
        declared = {name for name, call in registered.items() if name in sound and call in sound[name].pieces}
        used = {visible[name].path: visible[name] for name in found.called | declared}
        for each in tuple(used.values()):
            used |= each.uses
        if used:
            self._check_names(path, used)
            positions = SubstitutedSql(found.text, frozenset(), tuple(found.replaced))
            self.scripts[path] = ScriptWithFunctions(positions, tuple(sorted(used)))
        return found.text

    def _check_names(self, path: str, used: Mapping[str, _Function]) -> None:
        first: dict[str, str] = {}
        for each in used.values():
            other = first.setdefault(each.name, each.path)
            if other != each.path:
                summary = f"two functions named {each.name} are used here: {other} and {each.path}"
                self.problems.append(Problem(summary, "rename one of them", Where(path), each.name))
        # A session has one class loader: of two jars with one class, Spark silently runs that of the first (4.2.0).
        jars = {each.jar[1]: each.jar[0] for each in used.values() if each.jar[1]}
        if len(jars) > 1:
            named = " and ".join(sorted(jars.values()))
            summary = f"functions of {len(jars)} jars are used here: {named}"
            self.problems.append(Problem(summary, "build one jar with the classes of all of them", Where(path)))

    def declared(self, written: Mapping[str, str]) -> tuple[DeclaredFunction, ...]:
        """Return the valid functions, sorted by path. `written` contains the unchanged contents of their files."""
        from core.sql.tokens.data_types import fields_of

        return tuple(
            DeclaredFunction(
                name=each.name,
                script=self.script(path, written),
                scope=each.scope,
                parameters=tuple((one.name, one.type) for one in each.sql.parameters),
                returns=each.sql.returns,
                line=each.line,
                calls=tuple(sorted(each.uses)),
                columns=fields_of(each.sql.returns) if each.sql.columns else (),
            )
            for path, each in self.by_path.items()
            if each.sql is not None
        )

    def script(self, path: str, written: Mapping[str, str]) -> Script:
        """Return the file of a function."""
        text = self.texts[path]
        return Script(path, text, written[path] if written[path] != text else None)

    def named(self, paths: Collection[str], written: Mapping[str, str]) -> tuple[tuple[str, Script], ...]:
        """Return the functions at some paths with their names, sorted by name."""
        return tuple(sorted((self.by_path[path].name, self.script(path, written)) for path in paths))


def function_files(folder: str, texts: RevisionTexts) -> Iterator[tuple[str, str]]:
    """Yield the path and content of each function of a revision, as files that only the tables of a folder see.

    So tables that were deployed with different bodies of one function can be declared in one project.
    """
    for name, text in texts.functions:
        yield f"{folder}/{FUNCTIONS_FOLDER}/{function_file(name, text)}", text


def function_file(name: str, text: str) -> str:
    """Return the name of the file that declares a function, which ends with its language."""
    from core.sql.registered_functions import is_python

    return f"{name}.{'py' if is_python(text) else 'sql'}"


def has_functions(texts: Mapping[str, str]) -> bool:
    """True if a project has files in a `functions` folder."""
    return any(FUNCTIONS_FOLDER in path and function_scope(path) is not None for path in texts)


def read_functions(texts: Mapping[str, str], unread: Mapping[str, Problem]) -> FunctionFiles:
    """Read the functions among a project's files; `unread` has the Problems of files that cannot be read, by path."""
    from core.sql.registered_functions import is_of_jar

    found = FunctionFiles(texts)
    names: dict[tuple[str, str], str] = {}
    for path in sorted(texts):
        scope = function_scope(path) if FUNCTIONS_FOLDER in path else None
        if scope is None or f"/{FUNCTIONS_FOLDER}/{TESTS_FOLDER}/" in f"/{path}":
            continue
        function = _named(path, scope, found.problems)
        if function is None:
            continue
        first = names.setdefault((scope, function.name), path)
        if first != path:
            summary, remedy = f"{function.name} is declared twice", f"keep one: the other is {first}"
            found.problems.append(Problem(summary, remedy, Where(path), function.name))
            continue
        found.by_path[path] = function
        if path in unread:
            function.fault = unread[path]
        elif path.endswith(".sql") and is_of_jar(texts[path]):
            _read_of_jar(function, found, unread)
        elif path.endswith(".sql"):
            _read(function, found)
        elif path.endswith(".py"):
            _read_python(function, found)
        else:
            _refuse(function, found, _NOT_SUPPORTED[path.rpartition(".")[2].lower()], f"write {function.name}.sql")
    _complete(found)
    if any(map(is_jar, texts)):
        from core.project_reader.jar_files import unused_jars

        found.problems += unused_jars(texts)
    return found


def unknown_calls(
    tables: Mapping[TableName, Table], files: FunctionFiles, written: Mapping[str, str], *, certain: bool
) -> Iterator[Problem]:
    """Yield a Problem for each call of a function that neither Spark nor the project has.

    It is a warning unless it is `certain` that the pool has no functions of its own.
    """
    from core.sql.comparison.builtin_functions import foreign_functions
    from core.sql.registered_functions import function_of, is_registered_name
    from core.sql.tokens.lexer import open_sql

    for table in tables.values():
        if table.parsed is None or table.dml is None or table.parsed.in_python:
            continue
        for name in foreign_functions(table.parsed.canonical):
            if is_registered_name(name) and function_of(name) in dict(table.functions):
                continue
            path, known = table.dml.path, files.visible(table.folder)
            source = open_sql(written[path], path)
            call = re.search(rf"\b{re.escape(name)}`?\s*\(", source.text, re.IGNORECASE)
            # Without a column, because calls and variables before it were replaced.
            where = Where(path, source.line(call.start()) if call else table.parsed.line)
            if name in known:
                summary, remedy = f"{name} cannot be called here", "call it in an expression of a SELECT"
            else:
                summary = f"{name} is neither a function of Spark nor one of functions/"
                remedy = did_you_mean(name, known) or f"write functions/{name}.sql: headgate init function {name}"
            severity = Severity.ERROR if certain or name in known else Severity.WARNING
            yield Problem(summary, remedy, where, name, severity=severity)


def calls_in_settings(
    tables: Mapping[TableName, Table], files: FunctionFiles, yml: Mapping[TableName, str]
) -> Iterator[Problem]:
    """Yield a Problem for each setting whose SQL calls a function of the project, because only statements may."""
    from core.sql.function_calls import called_names
    from core.sql.tokens.lexer import SqlDiagnostic, open_sql, tokens_of

    for table in tables.values():
        for key, sql in (("deletes", table.settings.deletes), *(("checks", each) for _, each in table.settings.checks)):
            visible = files.visible(table.folder)
            try:
                called = [name for name, _ in called_names(tokens_of(open_sql(sql, "")))] if sql else []
            except SqlDiagnostic:
                continue
            if name := next((each for each in called if each in visible), ""):
                summary = f"{key} calls {name}, and only statements can call functions of the project"
                yield Problem(summary, f"write the expression of {name} there", Where(yml[table.name]), name)


def _named(path: str, scope: str, problems: list[Problem]) -> _Function | None:
    """Return the function that a file declares by its name; None if the file declares none."""
    from core.sql.comparison.builtin_functions import BUILTINS

    file = path.rpartition("/")[2]
    stem, _, ending = file.rpartition(".")
    name, right = stem.lower(), f"functions/{stem.lower()}.{ending.lower()}"
    if f"/{path}".rpartition("/")[0] != f"/{scope}/{FUNCTIONS_FOLDER}".replace("//", "/"):
        place = f"{scope}/{FUNCTIONS_FOLDER}".lstrip("/")
        problems.append(Problem("this file is in a folder below functions", f"move it to {place}/", Where(path), name))
        return None
    if ending.lower() not in ("sql", "py", *_NOT_SUPPORTED):
        return None
    wrong, remedy = "", ""
    if not _NAME.match(name):
        wrong, remedy = f"{stem!r} is not the name of a function", "use letters, digits and underscores"
    elif name in BUILTINS:
        # Spark 4.2.0 calls its own function, even if a temporary function has the same name.
        wrong, remedy = (
            f"Spark has a function {name}, which would be called instead",
            "rename the function and its file",
        )
    elif file != file.lower():
        wrong, remedy = f"{file} is ignored", f"rename it to {right}"
    if wrong:
        problems.append(Problem(wrong, remedy, Where(path), name))
        return None
    return _Function(path, scope, name)


def _read(function: _Function, files: FunctionFiles) -> None:
    from core.sql.function_reader import read_function

    draft, problems = read_function(files.texts[function.path], function.path)
    if draft is not None and draft.name != function.name:
        remedy = f"name the file {draft.name}.sql, or the function {function.name}"
        where = Where(function.path, draft.line)
        problems = (Problem(f"{function.name}.sql declares {draft.name}", remedy, where, draft.name),)
    if problems:
        files.problems += problems
        function.fault = problems[0]
    elif draft is not None:
        function.draft, function.line = draft, draft.line


def _read_python(function: _Function, files: FunctionFiles) -> None:
    from core.sql.python_function_reader import read_python_function

    found, problems = read_python_function(files.texts[function.path], function.path)
    files.problems += problems
    if found is None:
        function.fault = problems[0]
    else:
        function.sql, function.line = found.sql, found.declaration.line


def _read_of_jar(function: _Function, files: FunctionFiles, unread: Mapping[str, Problem]) -> None:
    from core.project_reader.jar_files import jar_problems
    from core.sql.jar_functions import read_jar_function

    found, problems = read_jar_function(files.texts[function.path], function.path)
    if found is not None:
        if found.name != function.name:
            remedy = f"name the file {found.name}.sql, or the function {function.name}"
            where = Where(function.path, found.line)
            problems = (Problem(f"{function.name}.sql declares {found.name}", remedy, where, found.name),)
        problems = (*problems, *jar_problems(found, files.texts))
        function.line = found.line
        function.fault = unread.get(f"{function.path.rpartition('/')[0]}/{found.jar}")
    files.problems += problems
    if problems:
        function.fault = problems[0]
    elif found is not None and function.fault is None:
        function.sql = found.called()
        function.jar = (f"{function.path.rpartition('/')[0]}/{found.jar}", found.sha256)


def _refuse(function: _Function, files: FunctionFiles, summary: str, remedy: str, where: Where | None = None) -> None:
    function.fault = Problem(f"{function.name}: {summary}", remedy, where or Where(function.path), function.name)
    files.problems.append(function.fault)


def _complete(files: FunctionFiles) -> None:
    """Replace the calls in the functions' own bodies, those that are called first; report cycles and unknown calls."""
    waiting = {path: _callees(each, files) for path, each in files.by_path.items() if each.draft is not None}
    while waiting:
        ready = [path for path, callees in waiting.items() if not callees & waiting.keys()]
        if not ready:
            _refuse_cycle(waiting, files)
            ready = [path for path in waiting if files.by_path[path].fault]
        for path in ready:
            callees = [files.by_path[each] for each in sorted(waiting.pop(path))]
            function = files.by_path[path]
            for callee in callees:
                function.fault = function.fault or callee.fault
                function.uses |= {callee.path: callee, **callee.uses}
            if function.fault is None:
                _finish(function, files)


def _callees(function: _Function, files: FunctionFiles) -> set[str]:
    """Return the paths of the functions that a body calls itself; report the calls of functions that do not exist."""
    assert function.draft is not None, "only functions with a body are completed"
    known, found = _known(function, files), set()
    for name, token in function.draft.calls:
        if name in known:
            found.add(known[name].path)
            continue
        summary = f"it calls {name}, which is neither a function of Spark nor one of functions/"
        remedy = did_you_mean(name, known) or f"write functions/{name}.sql: headgate init function {name}"
        _refuse(function, files, summary, remedy, function.draft.source.where(int(token.start)))
    return found


def _known(function: _Function, files: FunctionFiles) -> Mapping[str, _Function]:
    return files.visible(f"{function.scope}/{FUNCTIONS_FOLDER}".lstrip("/"))


def _refuse_cycle(waiting: Mapping[str, set[str]], files: FunctionFiles) -> None:
    """Report one cycle among functions, all of which wait for others, at the function that comes first by path."""
    walked = [min(waiting)]
    while (following := min(waiting[walked[-1]] & waiting.keys())) not in walked:
        walked.append(following)
    cycle = walked[walked.index(following) :]
    at = cycle.index(min(cycle))
    cycle = [*cycle[at:], *cycle[:at]]
    first = files.by_path[cycle[0]]
    assert first.draft is not None, "only functions with a body wait"
    called = files.by_path[(*cycle[1:], cycle[0])[0]].name
    token = next(token for name, token in first.draft.calls if name == called)
    names = " → ".join(files.by_path[path].name for path in (*cycle, cycle[0]))
    _refuse(first, files, f"its body contains itself: {names}", "remove one of these calls",
            first.draft.source.where(int(token.start)))  # fmt: skip
    for path in cycle:
        files.by_path[path].fault = first.fault


def _finish(function: _Function, files: FunctionFiles) -> None:
    from core.sql.function_reader import complete_function
    from core.sql.tokens.lexer import SqlDiagnostic

    draft = function.draft
    assert draft is not None, "a function without a draft has a fault"
    try:
        known = _known(function, files)
        function.sql = complete_function(draft, {n: each.sql for n, each in known.items() if each.sql is not None})
    except SqlDiagnostic as wrong:
        function.fault = draft.problem(wrong)
        files.problems.append(function.fault)
