"""Test cases of functions, as cases of generated statements that call each function once per row.

`functions/tests/<function>.yml` holds calls with their results. They are run like the cases of a statement, so values,
comparison and limits are the same.
"""

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.model.names import TableName
from core.model.problems import Problem, Where
from core.project.manifest_head import MANIFEST_PATH
from core.project.model import DeclaredFunction, Project, Table
from core.project_reader.loader import read_sound_tables
from core.project_reader.paths import FUNCTIONS_FOLDER, TESTS_FOLDER
from core.project_reader.yaml_reader import YamlSection, YamlValue, read_yaml
from core.statement_tests.case import Row, StatementCase
from core.statement_tests.case_writer import written_case
from core.statement_tests.typed_values import BadValue, typed_value
from core.text.escaping import quoted_name
from core.text.wording import counted, did_you_mean

_FORM = "write cases: [{args: [1, 2], expect: 3}]"
_ROWS = "write the rows that it returns: expect: [[1, a], [2, b]]"


@dataclass(slots=True)
class FunctionCases:
    """The test cases of functions, with the generated files that run them."""

    texts: dict[str, str] = field(default_factory=dict)
    """Files of the generated tables, by path."""
    tests: dict[str, str] = field(default_factory=dict)
    """Files of the generated cases, by path."""
    tables: dict[TableName, Table] = field(default_factory=dict)
    cases: list[StatementCase] = field(default_factory=list)
    shown: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For each generated case, by path, the function as `name()` and the path of the file with its cases."""
    problems: list[Problem] = field(default_factory=list)


def function_folders(functions: Iterable[DeclaredFunction]) -> tuple[str, ...]:
    """Return the folders whose `tests` folder has the cases of functions."""
    return tuple(sorted({posixpath.dirname(each.script.path) for each in functions}))


def function_cases(
    functions: Iterable[DeclaredFunction],
    project: Project,
    texts: Mapping[str, str],
    tests: Mapping[str, str],
    *,
    environment: str,
) -> FunctionCases:
    """Read the cases of functions of a project. `texts` are the project's files, `tests` those of all its cases.

    Variables have their values in `environment`. A file of cases without a function is a Problem.
    """
    found = FunctionCases()
    by_place = {(posixpath.dirname(each.script.path), each.name): each for each in project.functions}
    wanted = set(functions)
    for path, text in sorted(tests.items()):
        folder, file = posixpath.split(path)
        stem, _, ending = file.rpartition(".")
        beside = posixpath.dirname(folder)
        if ending != "yml":
            found.problems.append(Problem(f"{file} is ignored", f"rename it to {stem}.yml", Where(path)))
            continue
        function = by_place.get((beside, stem))
        if function is None:
            if not any(other.startswith(f"{beside}/{stem}.") for other in texts):
                known = [name for place, name in by_place if place == beside]
                remedy = did_you_mean(stem, known) or f"name it after a function: {', '.join(known)}.yml"
                found.problems.append(Problem(f"there is no function {stem}", remedy, Where(path), stem))
            continue
        rows = _rows(path, text, function, found.problems) if function in wanted else ()
        if rows:
            _generate(function, rows, path, project, found)
    if found.cases:
        manifest = {MANIFEST_PATH: texts[MANIFEST_PATH]}
        generated, problems = read_sound_tables({**manifest, **found.texts}, environment=environment)
        assert generated is not None, problems
        found.tables = {**generated.tables}
        found.tests = {
            case.path: written_case(case, case.expected, found.tables) + (f"key: [{case.key[0]}]\n" if case.key else "")
            for case in found.cases
        }
    return found


Calls = tuple[tuple[Row, tuple[Row, ...]], ...]
"""The arguments of calls, each with the rows that it returns; a function that returns a value returns a row of it."""


def _rows(path: str, text: str, function: DeclaredFunction, problems: list[Problem]) -> Calls:
    """Return the arguments and the expected result of each case in a file; mistakes are added to `problems`."""
    before = len(problems)
    top = read_yaml(text, path, problems)
    cases = top.value("cases") if top is not None else None
    if top is None:
        return ()
    top.only(("description", "cases"))
    if cases is None or not cases.items:
        problems.append(Problem("there are no cases", _FORM, Where(path, cases.line if cases else top.line), "cases"))
        return ()
    found = [row for each in cases.items if (row := _row(top, each, function)) is not None]
    return tuple(found) if len(problems) == before else ()


def _row(top: YamlSection, case: YamlValue, function: DeclaredFunction) -> tuple[Row, tuple[Row, ...]] | None:
    pairs = {key.text or "": value for key, value in case.pairs or ()}
    if not pairs.keys() <= {"args", "expect", "description"} or not pairs.keys() >= {"args", "expect"}:
        top.problems.append(Problem("a case has args and expect", _FORM, Where(top.path, case.line)))
        return None
    args, names = pairs["args"], [name for name, _ in function.parameters]
    given: dict[str, YamlValue] = {}
    if args.pairs is not None:
        given = {(key.text or "").lower(): value for key, value in args.pairs}
    elif args.items is not None:
        given = dict(zip(names, args.items, strict=False))
    where = Where(top.path, args.line)
    unknown = next((name for name in given if name not in names), "")
    if unknown:
        remedy = did_you_mean(unknown, names) or f"parameters: {', '.join(names)}"
        top.problems.append(Problem(f"{function.name} has no parameter {unknown}", remedy, where, unknown))
    elif len(given) != len(names) or len(args.items or ()) > len(names):
        count = counted(len(args.items if args.items is not None else given), "value")
        summary = f"{function.name} has {counted(len(names), 'parameter')}, and args has {count}"
        top.problems.append(Problem(summary, f"give a value to each of {', '.join(names)}", where))
    else:
        kinds = dict(function.parameters)
        values = tuple(_value(top, f"args.{name}", given[name], kinds[name]) for name in names)
        if function.columns:
            return values, _returned_rows(top, pairs["expect"], function.columns)
        return values, ((_value(top, "expect", pairs["expect"], function.returns),),)
    return None


def _returned_rows(top: YamlSection, expect: YamlValue, columns: tuple[tuple[str, str], ...]) -> tuple[Row, ...]:
    if expect.items is None:
        top.problems.append(Problem("expect must be a list of rows", _ROWS, Where(top.path, expect.line), "expect"))
        return ()
    found = []
    for row in expect.items:
        values = row.items
        if row.pairs is not None:
            by_name = {(key.text or "").lower(): value for key, value in row.pairs}
            given = [by_name.pop(name.lower(), None) for name, _ in columns]
            values = None if by_name or None in given else tuple(each for each in given if each is not None)
        if values is None or len(values) != len(columns):
            names = ", ".join(name for name, _ in columns)
            summary = f"a row of expect must have the columns {names}"
            top.problems.append(Problem(summary, _ROWS, Where(top.path, row.line), "expect"))
            continue
        pairs = zip(values, columns, strict=True)
        found.append(tuple(_value(top, f"expect.{name}", value, kind) for value, (name, kind) in pairs))
    return tuple(found)


def _value(top: YamlSection, name: str, value: YamlValue, kind: str) -> object:
    try:
        return typed_value(value, kind)
    except BadValue as error:
        top.problems.append(
            Problem(f"{name} must be of type {kind}", f"write {error}", Where(top.path, value.line), name)
        )
        return None


def _generate(function: DeclaredFunction, rows: Calls, path: str, project: Project, found: FunctionCases) -> None:
    """Generate a table of calls, a statement that makes the calls, and its case; each row has a number."""
    table = _free(f"function_{function.name}", {*project.tables, *(case.table for case in found.cases)})
    columns = function.columns or (("result", function.returns),)
    taken = {name for name, _ in (*function.parameters, *function.columns)}
    calls, number = TableName(f"{table}_calls"), _free("case", taken)
    folder = f"pipelines/facts/{table}"
    declared = "".join(f", {quoted_name(name)} {kind}" for name, kind in function.parameters)
    arguments = ", ".join(quoted_name(name) for name, _ in function.parameters)
    returned = "".join(f", {quoted_name(name)} {kind}" for name, kind in columns)
    if function.columns:
        names = ", ".join(f"result.{quoted_name(name)}" for name, _ in columns)
        select = f"SELECT `{number}`, {names} FROM STREAM {calls}, LATERAL {function.name}({arguments}) AS result"
    else:
        select = f"SELECT `{number}`, {function.name}({arguments}) AS result FROM STREAM {calls}"
    found.texts |= {
        f"{folder}/sql-scripts/ddl.{calls}.sql": f"CREATE TABLE {calls} (`{number}` BIGINT{declared}) USING parquet "
        f"LOCATION '{calls}'",
        f"{folder}/sql-scripts/ddl.{table}.sql": f"CREATE TABLE {table} (`{number}` BIGINT{returned}) USING parquet",
        f"{folder}/sql-scripts/dml.{table}.sql": f"INSERT INTO {table}\n{select}",
    }
    by_path = {each.script.path: each for each in project.functions}
    for each in (function, *(by_path[called] for called in function.calls)):
        file = posixpath.basename(each.script.path)
        found.texts[f"{folder}/{FUNCTIONS_FOLDER}/{file}"] = each.script.as_written
    given = tuple((n, *values) for n, (values, _) in enumerate(rows, 1))
    expected = tuple((n, *row) for n, (_, returned_rows) in enumerate(rows, 1) for row in returned_rows)
    case = StatementCase(
        function.name,
        f"{folder}/{TESTS_FOLDER}/{function.name}.yml",
        table=table,
        parts=({calls: given},),
        expected=expected,
        key=() if function.columns else (number,),
    )
    found.cases.append(case)
    found.shown[case.path] = f"{function.name}()", path


def _free(name: str, taken: Iterable[str]) -> TableName:
    return TableName(name) if name not in taken else _free(f"{name}_", taken)
