"""The command `init`: writes the files of a new project, or of a new table that is ready to deploy."""

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.model.errors import InvalidProject, Refused, UsageError
from core.model.file_stores import READABLE, StoreAbility, store_kind
from core.model.names import TableName, parse_table_name
from core.plan.request import PlanRequest, parse_layer
from core.project.data_folder import is_in_hdfs
from core.project.model import LAYER_FOLDERS
from core.project_reader.paths import FUNCTIONS_FOLDER, TESTS_FOLDER
from core.text.wording import counted, did_you_mean
from core.text.yaml_writer import as_yaml
from tui.command_line.context import CommandContext
from tui.project_folder import project_folder_reader
from tui.project_folder.declaring_files import FOLDER, generated_texts_in, read_files, read_text
from tui.project_folder.manifest_head_cache import PROJECT_FILE

if TYPE_CHECKING:
    from core.project.model import Project

MANIFEST = """\
project: {name}
id: {id}
default_env: dev
environments:
  dev:
    data: data
    protected: false
    pool:
      name: local
      cores: 2
      memory: 1g
defaults:
  trigger: 5 seconds
"""

NO_TABLES = """\
-- The tables of the manifests, each with the format in which it is stored, such as:
-- CREATE TABLE orders (id BIGINT, price DOUBLE) USING json LOCATION 'landing/orders';
-- CREATE TABLE dear_orders (id BIGINT, price DOUBLE) USING parquet;
"""

EXTERNAL_DDL = """\
-- External input: files that arrive in {location}, one JSON object per line.
CREATE TABLE {table} (
  id BIGINT,
  happened_at TIMESTAMP,
  note STRING
)
USING json
LOCATION '{location}';
"""

JDBC_DDL = """\
-- External input: a table of a database, with the columns that it has now.{left_out}
CREATE TABLE {table} (
{columns}
)
USING jdbc
OPTIONS ({options});
"""

KAFKA_DDL = """\
-- External input: Kafka topics. Their newest {messages} have these columns.{left_out}
CREATE TABLE {table} (
{columns}
)
USING kafka
OPTIONS (
  {options}
);
"""

KEYED_YML = """\
description: Current rows of {parent}
mode: upsert
key: [{key}]
sequence: _sequence
deletes: _op = 'd'
"""

DELTA_DDL = """\
-- External input: a Delta table that others write, with the columns in its log.
CREATE TABLE {table} (
{columns}
)
USING delta
LOCATION {location};
"""

DDL = """\
CREATE TABLE {table} (
{columns}
)
USING parquet;
"""

DML = """\
INSERT INTO {table}
SELECT {columns}
FROM STREAM {parent};
"""

JOB = """\
from pyspark.sql import DataFrame


def {table}({parent}: DataFrame) -> DataFrame:
    # A streaming DataFrame with the columns of ddl.{table}.sql: headgate help jobs
    return {parent}.select(
{columns}
    )
"""

YML = """\
description: {description}
"""

FUNCTION = """\
-- Text without blanks around it, in lower case. Statements call it: SELECT {name}(column) AS …
CREATE FUNCTION {name}(value STRING)
RETURNS STRING
RETURN trim(lower(value));
"""

PYTHON_FUNCTION = """\
# CREATE FUNCTION {name}(value STRING) RETURNS STRING

import unicodedata


# Text without blanks around it and without accents, in lower case. Statements call it: SELECT {name}(column) AS …
def {name}(value: str | None) -> str | None:
    if value is None:
        return None
    letters = unicodedata.normalize("NFKD", value.strip().lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
"""

FUNCTION_CASES = """\
# Calls with their results; headgate test '{name}()' runs them.
cases:
- {{args: ["  Two Words "], expect: two words}}
- {{args: [null], expect: null}}
"""

EXAMPLE = (
    '{"id": 1, "happened_at": "2026-01-01T00:00:00Z", "note": "the first event"}\n'
    '{"id": 2, "happened_at": "2026-01-01T00:00:01Z", "note": "the second event"}\n'
)

EXAMPLE_COLUMNS = (("id", "BIGINT"), ("happened_at", "TIMESTAMP"), ("note", "STRING"))

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")


def init(context: CommandContext) -> int:
    """Write the files of a new project, or of a new table or function with `init table` and `init function`."""
    if context.args.subcommand == "table":
        return _init_table(context, context.args.name)
    if context.args.subcommand == "function":
        return _init_function(context, context.args.name)
    if context.args.from_manifests is not None:
        return _init_from_manifests(context, context.args.from_manifests)
    return _init_project(context, context.args.name)


def _init_project(context: CommandContext, name: str | None) -> int:
    folder = Path(context.cwd, name) if name else Path(context.cwd)
    title = folder.resolve().name.lower()
    if not _NAME.match(title):
        raise UsageError(f"{title!r} is not a valid project name", remedy="use letters, digits, - and _, at most 40")
    if (folder / PROJECT_FILE).exists():
        raise Refused(f"{folder / PROJECT_FILE} already exists", remedy="headgate init table NAME adds a table to it")
    here = name is not None and os.path.normpath(name) == os.curdir
    if name is None and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty",
            remedy="name a new folder: headgate init NAME; or write the project into this one: headgate init .",
        )
    if name and not here and folder.exists() and any(folder.iterdir()):
        raise Refused(
            f"{folder} exists and is not empty", remedy="give another name, or go there and run headgate init ."
        )
    written = {
        PROJECT_FILE: MANIFEST.format(name=title, id=uuid.uuid4()),
        ".gitignore": "/data/\n/data.*/\n",
        "data/landing/events/example.json": EXAMPLE,
        "pipelines/sources/main/events/sql-scripts/ddl.events.sql": EXTERNAL_DDL.format(
            table="events", location="landing/events"
        ),
        **_statement_files("sources", "main", "src_events", "events", EXAMPLE_COLUMNS),
    }
    _write(context, folder, written)
    place = f"cd {name}; " if name and not here else ""
    context.output.say(f"next: {place}headgate up; headgate plan --all; headgate apply HASH; headgate")
    return 0


def _init_from_manifests(context: CommandContext, given: str) -> int:
    """Write the headgate.yml of a project of manifests into the current folder; existing files stay as they are."""
    from core.project_reader.layout import DEFAULT_TEMPLATE

    folder = Path(context.cwd)
    if context.args.name:
        raise UsageError(
            f"--from-manifests makes the current folder a project, and {context.args.name} was named as well",
            remedy="go to the folder above the manifests, and leave out NAME",
        )
    title = folder.resolve().name.lower()
    if not _NAME.match(title):
        raise UsageError(f"{title!r} is not a valid project name", remedy="rename the folder: letters, digits, - and _")
    if (folder / PROJECT_FILE).exists():
        raise Refused(
            f"{folder / PROJECT_FILE} already exists", remedy="headgate help manifests has the lines to add to it"
        )
    manifests = os.path.normpath(os.path.relpath(os.path.join(folder, given), folder))
    if not (folder / manifests).is_dir() or manifests.split(os.sep)[0] in (os.curdir, os.pardir, FOLDER):
        remedy = f"name a folder below the current one, other than {FOLDER}; the current one becomes the project"
        raise UsageError(f"{given!r} cannot be the folder of the manifests", remedy=remedy)
    found = _found_below(folder)
    if not any(path.startswith(f"{manifests}/") and path.endswith((".yaml", ".yml")) for path in found):
        raise UsageError(f"{manifests} contains no .yaml or .yml file", remedy="name the folder of the manifests")
    tables = [path for path, text in found.items() if path.endswith(".sql") and _declares_tables(text)]
    templates = [path for path in found if path.rpartition("/")[2] in (DEFAULT_TEMPLATE, "job-template.yml")]
    settings: dict[str, object] = {"folder": manifests}
    if templates and DEFAULT_TEMPLATE not in templates:
        settings["template"] = templates[0]
    settings["tables"] = tables or ["tables.sql"]
    written = {
        PROJECT_FILE: MANIFEST.format(name=title, id=uuid.uuid4())
        + "  reads: stream\n"
        + as_yaml({"layout": "manifests", "manifests": settings}),
        ".gitignore": "/data/\n/data.*/\n",
        **({} if tables else {"tables.sql": NO_TABLES}),
    }
    _write(context, folder, written)
    _say_what_is_wrong(context, folder)
    return 0


def _found_below(folder: Path) -> dict[str, str]:
    """Return the SQL and YAML files below a folder that can be read, by path; hidden folders and data are left out."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "data")
        for path in (os.path.join(place, name) for name in sorted(names) if name.endswith((".sql", ".yaml", ".yml"))):
            with suppress(OSError, UnicodeDecodeError):
                found[os.path.relpath(path, folder)] = read_text(path)
    return found


def _declares_tables(sql: str) -> bool:
    return re.search(r"^\s*create\s+(external\s+)?table\b", sql, re.IGNORECASE | re.MULTILINE) is not None


def _say_what_is_wrong(context: CommandContext, folder: Path) -> None:
    from core.model.problems import Severity
    from core.project_reader.loader import read_sound_tables

    project, problems = read_sound_tables(read_files(str(folder)).texts)
    declared = project.tables.values() if project is not None else ()
    jobs = {table.manifest for table in declared if table.manifest}
    context.output.say(f"{counted(len(jobs), 'manifest')} can be deployed, {counted(len(declared), 'table')} declared")
    if errors := sum(problem.severity is Severity.ERROR for problem in problems):
        context.output.say(f"{counted(errors, 'problem')} to correct: headgate plan --all lists them")
    else:
        context.output.say("next: headgate up; headgate plan --all; headgate apply HASH; headgate")


def _init_function(context: CommandContext, name: str) -> int:
    name = name.strip("`").removesuffix("()").lower()
    context.announce()
    folder = Path(context.place.folder, FUNCTIONS_FOLDER)
    if other := next((each for each in (folder / f"{name}.sql", folder / f"{name}.py") if each.exists()), None):
        raise Refused(f"{other} exists", remedy="edit it, or give another name")
    file, text = (f"{name}.py", PYTHON_FUNCTION) if context.args.python else (f"{name}.sql", FUNCTION)
    written = {
        f"{FUNCTIONS_FOLDER}/{file}": text.format(name=name),
        f"{FUNCTIONS_FOLDER}/{TESTS_FOLDER}/{name}.yml": FUNCTION_CASES.format(name=name),
    }
    _refuse_invalid(context, f"{name}() would not be a valid function", written)
    _write(context, Path(context.place.folder), written)
    context.output.say(f"edit both, then run its cases: headgate test '{name}()'; statements call {name}(…)")
    return 0


def _init_table(context: CommandContext, name: str) -> int:
    args = context.args
    table = parse_table_name(name)
    if empty := next((name for name in ("reads", "delta", "postgres", "kafka") if getattr(args, name) == ""), ""):
        raise UsageError(f"--{empty} is empty", remedy="give it a value, or leave it out")
    if args.python and not args.reads:
        raise UsageError("--python writes a job that reads a table", remedy="name it with --reads TABLE")
    context.announce()
    return _init_declared(context, table)


def _init_declared(context: CommandContext, table: TableName) -> int:
    args, place = context.args, context.place
    if generated_texts_in(place.folder) is not None:
        raise Refused(
            f"{place.folder} is a project of manifests, in which headgate init table has nothing to write",
            remedy=f"declare {table} in a file under manifests.tables, and write a manifest: headgate help manifests",
        )
    known = {entry.table: entry for entry in project_folder_reader.declared_tables(place.folder)}
    if table in known:
        raise Refused(f"{table} is already declared", remedy="edit its files, or give another name")
    parent = parse_table_name(args.reads) if args.reads else None
    if parent is not None and parent not in known:
        raise UsageError(
            f"{parent} is not declared",
            remedy=did_you_mean(parent, known) or f"an external input of that name: headgate init table {parent}",
        )
    layer = _layer_folder(args.layer) if args.layer else "sources" if parent is None else "intermediates"
    if parent is None and layer != "sources":
        raise UsageError(
            f"a table in {layer} needs a statement that reads a table: --reads TABLE",
            remedy=f"declared: {', '.join(known)}" if known else "headgate init table NAME makes an external input",
        )
    product = args.product or (known[parent].product if parent else "main")
    if not _NAME.match(product):
        raise UsageError(f"{product!r} is not a valid product name", remedy="use letters, digits, - and _, at most 40")
    location = f"landing/{table}"
    path = f"pipelines/{layer}/{product}/{table}/sql-scripts/ddl.{table}.sql"
    next_statement = f"a statement that reads them: headgate init table src_{table} --reads {table}"
    if args.delta:
        written = {path: _delta_ddl(context, table, args.delta)}
        then = f"Headgate only reads that table; {next_statement}"
        _refuse_impossible(context, table, written)
    elif args.postgres:
        written = {path: _jdbc_ddl(context, table, args.postgres)}
        then = f"statements can join it: JOIN {table} AS {table[0]} ON …; headgate help postgres"
        _refuse_impossible(context, table, written)
    elif args.kafka:
        if (reader := TableName(f"src_{table}")) in known:
            raise Refused(f"{reader} is already declared", remedy="give the topics another name")
        written, looked_at = _files_of_topics(context, (layer, product, reader, table), path)
        then = f"looked at {counted(looked_at, 'message')}; next: headgate plan {reader}"
    elif parent is None:
        written = {path: EXTERNAL_DDL.format(table=table, location=location)}
        then = f"put files with one JSON object per line into {os.path.join(place.data, location)}; {next_statement}"
        _refuse_impossible(context, table, written)
        try:
            if not is_in_hdfs(place.data):
                os.makedirs(os.path.join(place.data, location), exist_ok=True)
        except OSError as error:
            folder = os.path.join(place.data, location)
            why = f"nothing was written: {folder} cannot be created: {error.strerror}"
            raise UsageError(why, remedy="make the data folder writable") from error
    else:
        written = _readable_statement(context, (layer, product, table, parent))
        then = f"next: headgate plan {table}"
    _write(context, Path(place.folder), written)
    context.output.say(then)
    return 0


def _delta_ddl(context: CommandContext, table: TableName, location: str) -> str:
    """Return the DDL of an existing Delta table. `location` is absolute, or relative to the data folder."""
    from core.sql.statement import TableDdl
    from core.text.escaping import quoted_name, quoted_string_literal
    from tui.services.doctor_checks import columns_of_delta

    place = TableDdl(table, (), "delta", location=location).location_in(context.place.data)
    if StoreAbility.READ not in store_kind(place).abilities:
        why = f"{place} is in a store that Headgate cannot read; the log of a table is read from {', '.join(READABLE)}"
        raise Refused(f"nothing was written: {why}", remedy="mount it on the host of agent and pool, and give its path")
    found = columns_of_delta(context.environ, context.place, place)
    if not found.ok:
        raise Refused(f"nothing was written: {found.summary}", remedy=found.remedy)
    columns = ",\n".join(f"  {quoted_name(name)} {kind}" for name, kind in found.facts["columns"])
    return DELTA_DDL.format(table=table, columns=columns, location=quoted_string_literal(location))


def _jdbc_ddl(context: CommandContext, table: TableName, uri: str) -> str:
    from core.sql.jdbc_tables import jdbc_options_of
    from core.text.escaping import quoted_name, quoted_string_literal
    from tui.services.doctor_checks import columns_in_database

    found = columns_in_database(context.environ, uri)
    if not found.ok:
        kind = UsageError if jdbc_options_of(uri) is None else Refused
        raise kind(f"nothing was written: {found.summary}", remedy=found.remedy)
    readable = [(name, kind) for name, kind in found.facts["columns"] if kind]
    if not readable:
        raise Refused("nothing was written: Spark can read none of its columns", remedy="create a view that casts them")
    others = ", ".join(name for name, kind in found.facts["columns"] if not kind)
    left_out = f"\n-- Left out, because Spark would add a date to a time of day: {others}." if others else ""
    columns = ",\n".join(f"  {quoted_name(name)} {kind}" for name, kind in readable)
    options = ", ".join(f"{name} {quoted_string_literal(value)}" for name, value in found.facts["options"].items())
    return JDBC_DDL.format(table=table, columns=columns, options=options, left_out=left_out)


def _files_of_topics(
    context: CommandContext, names: tuple[str, str, TableName, TableName], path: str
) -> tuple[dict[str, str], int]:
    """Return the files of a table over topics and of a statement that reads it, and how many messages were read.

    The statement keeps the current rows if the topics hold changes of a database and the project may use Delta.
    """
    from core.text.escaping import quoted_name, quoted_string_literal
    from tui.services.doctor_checks import columns_of_topics

    layer, product, reader, table = names
    found = columns_of_topics(context.environ, context.args.kafka)
    if not found.ok:
        raise UsageError(f"nothing was written: {found.summary}", remedy=found.remedy)
    columns = tuple((quoted_name(each["name"]), str(each["type"])) for each in found.facts["columns"])
    lines = [f"  {name} {kind}," for name, kind in columns]
    lines[-1] = lines[-1].removesuffix(",")
    remarks = (each["remark"] and f"  -- {each['remark']}" for each in found.facts["columns"])
    options = [tuple(map(quoted_string_literal, each)) for each in found.facts["options"].items()]
    others = ", ".join(map(quoted_name, found.facts["left_out"]))
    ddl = KAFKA_DDL.format(
        table=table,
        messages=counted(found.facts["looked_at"], "message"),
        columns="\n".join(map("".join, zip(lines, remarks, strict=True))),
        options=",\n  ".join(f"{name} = {value}" for name, value in options),
        left_out=f"\n-- Left out, because SQL cannot have them beside the others: {others}." if others else "",
    )
    written = {path: ddl, **_statement_files(layer, product, reader, table, columns)}
    if key := ", ".join(map(quoted_name, found.facts["key"])):
        _, ddl_path, _, yml_path = written
        on_delta = {ddl_path: written[ddl_path].replace("USING parquet", "USING delta")}
        keyed = {**written, **on_delta, yml_path: KEYED_YML.format(parent=table, key=key)}
        with suppress(InvalidProject):
            _refuse_impossible(context, reader, keyed)
            return keyed, found.facts["looked_at"]
    _refuse_impossible(context, reader, written)
    return written, found.facts["looked_at"]


def _layer_folder(word: str) -> str:
    """Return a layer's folder name, given the layer or the folder: `fact` and `facts` both give `facts`."""
    layer = parse_layer(word)
    return next(folder for folder, known in LAYER_FOLDERS.items() if known == layer)


def _readable_statement(context: CommandContext, names: tuple[str, str, str, TableName]) -> dict[str, str]:
    layer, product, table, parent = names
    declared = context.operations.project().tables[parent].parsed_ddl.columns
    if not declared:
        raise Refused(f"{parent} declares no columns", remedy=f"declare them in ddl.{parent}.sql, then run this again")
    for quote in ("", "`"):
        columns = tuple((f"{quote}{column.name}{quote}", column.type) for column in declared)
        written = _statement_files(layer, product, table, parent, columns)
        if context.args.python:
            written = _as_job(written, table, parent, tuple(name for name, _ in columns))
        try:
            _refuse_impossible(context, TableName(table), written)
            break
        except InvalidProject:
            if quote:
                raise
    return written


def _refuse_impossible(context: CommandContext, table: TableName, written: dict[str, str]) -> None:
    """Check the contents of the files to be written, given by path in `written`.

    Raises InvalidProject if the files would make the project invalid, and Refused if the table could not be planned.
    """
    project = _refuse_invalid(context, f"{table} would not be a valid declaration", written)
    plan = context.operations.compute_over(project, context.operations.planner_input(), PlanRequest(tables=(table,)))
    if plan.refusals:
        raise Refused(f"nothing was written: {plan.refusals[0].summary}", remedy=str(plan.refusals[0].remedy))


def _refuse_invalid(context: CommandContext, summary: str, written: dict[str, str]) -> "Project":
    """Return the project with the files to be written; raises InvalidProject if they would make it invalid."""
    from core.project_reader.loader import read_project

    texts = read_files(context.place.folder).texts
    environment = context.place.environment
    project, problems = read_project({**texts, **_declaring(written)}, environment=environment)
    if project is None:
        if read_project(texts, environment=environment)[0] is None:
            # The project was invalid before. This raises its own problems, because what is new does not solve all of
            # them.
            context.operations.project()
        raise InvalidProject(
            f"{summary}; nothing was written",
            remedy="correct what is listed, and run this again",
            problems=tuple(problem.as_json() for problem in problems),
        )
    return project


def _declaring(written: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in written.items() if f"/{TESTS_FOLDER}/" not in path}


def _statement_files(
    layer: str, product: str, table: str, parent: str, columns: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    folder = f"pipelines/{layer}/{product}/{table}"
    typed = ",\n".join(f"  {name} {kind}" for name, kind in columns)
    names = ", ".join(name for name, _ in columns)
    return {
        f"{folder}/sql-scripts/ddl.{table}.sql": DDL.format(table=table, columns=typed),
        f"{folder}/sql-scripts/dml.{table}.sql": DML.format(table=table, columns=names, parent=parent),
        f"{folder}/{table}.yml": YML.format(description=f"Every row of {parent}"),
    }


def _as_job(files: dict[str, str], table: str, parent: TableName, names: tuple[str, ...]) -> dict[str, str]:
    """Return the files of a statement with a job in Python in place of its SQL."""
    columns = "\n".join(f"        {name!r}," for name in names).replace("'", '"')
    found = {}
    for path, text in files.items():
        if path.endswith(f"/dml.{table}.sql"):
            path = path.replace(f"/dml.{table}.sql", f"/job.{table}.py")
            text = JOB.format(table=table, parent=parent, columns=columns)
        found[path] = text
    return found


def _write(context: CommandContext, folder: Path, files: dict[str, str]) -> None:
    existing = [path for path in files if (folder / path).exists() and path != ".gitignore"]
    if existing:
        raise Refused(f"{folder / existing[0]} exists", remedy="nothing was written; move it away first")
    for path, text in files.items():
        place = folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if path == ".gitignore" and place.exists():
                continue
            place.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{place} cannot be written: {error.strerror}", remedy="run it in a folder that you can write to"
            ) from error
    written = {"folder": str(folder), "written": list(files)}
    context.output.answer(written, lines=[str(folder / path) for path in files])
