"""The layout `manifests`: a project of YAML manifests and SQL files of table definitions, as texts of the usual layout.

All code after this module reads the generated texts, as if each manifest were a folder with DDL, DML and yml. Only
Problems, and what people see of a script, lead back to the files: one of the texts has the place of each line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import yaml

from core.model.errors import BadName
from core.model.names import TableName, parse_table_name
from core.model.problems import Problem, Severity, Where
from core.project.manifest_head import MANIFEST_PATH, PLACES
from core.project.model import LAYER_FOLDERS, Settings, TextPart
from core.project.unreadable_file import UnreadableFile
from core.project_reader.job_files import GeneratedJob, generated_job
from core.project_reader.job_manifests import (
    NAMED,
    PRODUCT,
    SETTINGS,
    JobManifest,
    ManifestStatement,
    MergedSettings,
    Templates,
    read_job_manifest,
)
from core.project_reader.layout import ManifestLayout, missing_files, template_references
from core.project_reader.manifest import Manifest, read_manifest
from core.project_reader.places import written_places
from core.project_reader.table_yml import read_settings
from core.sql.tokens.lexer import PIECES
from core.text.wording import did_you_mean

_CREATE = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:EXTERNAL|GLOBAL|TEMPORARY|TEMP|MATERIALIZED)\s+)*(?:TABLE|VIEW)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>(?:`[^`]*`|[^\s(`.;]+)(?:\s*\.\s*(?:`[^`]*`|[^\s(`.;]+))*)",
    re.IGNORECASE,
)
_WIDE = 1 << 30
"""Width of a line of generated yml, so that each setting has one line."""


def generated_texts(files: Mapping[str, str]) -> Mapping[str, str]:
    """Return the texts of the usual layout, by path, for the files of a project of manifests.

    headgate.yml and functions stay as they are, and so do files that cannot be read or assigned. The result depends on
    nothing else, so texts of two moments can be compared.
    """
    manifest = read_manifest(files.get(MANIFEST_PATH), [])
    layout = manifest.layout
    if layout is None:
        return {path: text for path, text in files.items() if path == MANIFEST_PATH}
    draft = _Draft(files, layout)
    for problem in missing_files(files):
        draft.report(problem)
    jobs = _read_jobs(draft, manifest)
    _read_definitions(draft)
    _refuse_duplicates(jobs, draft)
    for job in jobs:
        _generate_job(job, draft)
    _generate_external(draft)
    return {**draft.texts(), **{path: text for path, text in files.items() if layout.is_function(path)}}


@dataclass(frozen=True, slots=True)
class _Definition:
    path: str
    line: int
    text: str
    column: int = 0


@dataclass(slots=True)
class _Draft:
    files: Mapping[str, str]
    layout: ManifestLayout
    found: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[TextPart]] = field(default_factory=dict)
    problems: list[tuple[tuple[str, ...], Problem]] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    manifests: dict[str, str] = field(default_factory=dict)
    definitions: dict[TableName, _Definition] = field(default_factory=dict)
    declared: dict[TableName, str] = field(default_factory=dict)
    """The folder to which the DDL of each table was generated."""
    wrong: dict[str, list[Problem]] = field(default_factory=dict)
    """The Problems of each manifest, by its path; all of them are errors."""
    wrong_templates: set[str] = field(default_factory=set)
    """Paths of the templates that have errors."""

    def add(self, path: str, text: str, parts: list[TextPart]) -> None:
        self.found[path], self.parts[path] = text, parts

    def report(self, problem: Problem, *folders: str) -> None:
        self.problems.append((folders, problem))

    def texts(self) -> dict[str, str]:
        kept = {MANIFEST_PATH: self.files[MANIFEST_PATH]}
        strays = {problem.where.path for folders, problem in self.problems if problem.where and not folders}
        for path, text in self.files.items():
            # Variables would be replaced in SQL a second time.
            if isinstance(text, UnreadableFile) or (path in strays and not path.endswith(".sql")):
                kept[path] = text
        places = written_places(self.parts, self.problems, self.unread, self.manifests)
        return dict(sorted({**kept, **self.found, PLACES: places}.items()))


def _read_jobs(draft: _Draft, manifest: Manifest) -> list[JobManifest]:
    """Read the manifests; the Problems of templates are reported with the folders of the manifests that use them."""
    layout, files = draft.layout, draft.files
    wrong: list[Problem] = []
    templates = Templates(files, manifest.environments, wrong)
    default = layout.template if layout.template in files else ""
    references = template_references(files, layout)
    jobs = [
        read_job_manifest(text, path, layout.folder, default, templates)
        for path, text in files.items()
        if layout.is_manifest(path) and path not in references and not isinstance(text, UnreadableFile)
    ]
    folders_by_template: dict[str, list[str]] = {}
    for job in jobs:
        draft.wrong[job.path] = [*job.problems]
        for path in job.templates:
            folders_by_template.setdefault(path, []).extend([_folder(job)] if _unit(job) else [])
    for problem in wrong:
        path = problem.where.path if problem.where else ""
        draft.wrong_templates.add(path)
        draft.report(problem, *folders_by_template.get(path, ()))
    return jobs


def _unit(job: JobManifest) -> str:
    """Return the name of a job's folder; empty if the job writes no table that could be named."""
    if not job.statements:
        return ""
    return re.sub(r"[.-]", "_", job.name).lower() or job.statements[0].target


def _folder(job: JobManifest) -> str:
    layer = next(folder for folder, layer in LAYER_FOLDERS.items() if layer is job.layer)
    return f"pipelines/{layer}/{job.product}/{_unit(job)}"


def _refuse_duplicates(jobs: Iterable[JobManifest], draft: _Draft) -> None:
    """Report names and targets that occur twice, and targets that no file declares, in the manifests concerned."""
    names: dict[str, JobManifest] = {}
    targets: dict[TableName, tuple[JobManifest, Where]] = {}
    for job in jobs:
        unit = re.sub(r"[.-]", "_", job.name).lower()
        if unit and unit in names:
            first = names[unit]
            summary = f"two manifests have the name {job.name}"
            if first.name != job.name:
                summary = f"the names {first.name} and {job.name} differ only in case or punctuation"
            _report_both(draft, (first, job), summary, first.place, Problem(summary, "", job.place, job.name))
        elif unit:
            names[unit] = job
        for each in job.statements:
            if each.target in targets:
                other, place = targets[each.target]
                summary = f"{each.target} has two writers"
                problem = Problem(summary, "", each.target_place, each.target)
                _report_both(draft, (other, job), summary, place, problem)
            else:
                targets[each.target] = job, each.target_place
            if each.target not in draft.definitions:
                draft.wrong[job.path].append(_undeclared(each, draft))


def _report_both(
    draft: _Draft, jobs: tuple[JobManifest, JobManifest], summary: str, first: Where, problem: Problem
) -> None:
    found = replace(problem, remedy=f"keep one, or give one another name: the other is {first}")
    for job in set(job.path for job in jobs):
        draft.wrong[job].append(found)


def _undeclared(statement: ManifestStatement, draft: _Draft) -> Problem:
    target = statement.target
    files = draft.layout.tables
    remedy = did_you_mean(target, draft.definitions) or f"write CREATE TABLE {target} (…) USING … in {files[-1]}"
    return Problem(f"no file of table definitions declares {target}", remedy, statement.target_place, target)


def _generate_job(job: JobManifest, draft: _Draft) -> None:
    wrong = draft.wrong[job.path]
    unit = _unit(job)
    if not unit:
        for problem in wrong:
            draft.report(problem)
        return
    folder = _folder(job)
    draft.manifests[folder] = job.path
    for problem in wrong:
        draft.report(problem, folder)
    broken = bool(wrong) or not draft.wrong_templates.isdisjoint(job.templates)
    for each in job.statements:
        if each.target in draft.definitions and each.target not in draft.declared:
            _generate_ddl(each.target, folder, draft)
        dml = f"{folder}/sql-scripts/dml.{each.target}.sql"
        generated = _generated_code(each, folder, draft) if each.code is not None and not broken else None
        if generated is not None:
            draft.add(dml, generated.text, list(generated.parts))
            _generate_yml(each, job, folder, draft)
            continue
        line = each.sql.line if each.sql else each.target_place.line
        head = TextPart(1, job.path, line, follows=False)
        if broken or each.sql is None:
            draft.add(dml, draft.files[job.path], [head])
            draft.unread.add(dml)
            continue
        below = [replace(part, line=part.line + 1) for part in each.sql.parts]
        draft.add(dml, f"INSERT INTO {each.target}\n{each.sql.text}\n", [head, *below])
        _generate_yml(each, job, folder, draft)


def _generated_code(statement: ManifestStatement, folder: str, draft: _Draft) -> GeneratedJob | None:
    assert statement.code is not None, "the caller has asked"
    problems: list[Problem] = []
    # Mistakes in the settings are found where the generated yml is read.
    settings = read_settings(settings_as_yml(statement.settings), "", Settings(), [])
    place = statement.settings.places.get("inputs", statement.target_place)
    job = generated_job(statement.code, settings, place, problems)
    for problem in problems:
        draft.report(problem, folder)
    return job


def _generate_ddl(table: TableName, folder: str, draft: _Draft) -> None:
    found = draft.definitions[table]
    path = f"{folder}/sql-scripts/ddl.{table}.sql"
    parts = [TextPart(1, found.path, found.line, columns=found.column)]
    if found.column:
        parts.append(TextPart(2, found.path, found.line + 1))
    draft.add(path, f"{found.text};\n", parts)
    draft.declared[table] = folder


def _generate_yml(statement: ManifestStatement, job: JobManifest, folder: str, draft: _Draft) -> None:
    nodes = {key: node for key, node in statement.settings.nodes.items() if key in SETTINGS}
    path = f"{folder}/{statement.target}.yml"
    places = [*(statement.settings.places[key] for key in nodes), job.place]
    draft.add(
        path,
        f'{settings_as_yml(statement.settings)}{NAMED}: "{job.name}"\n',
        [TextPart(n, place.path, place.line, follows=False) for n, place in enumerate(places, start=1)],
    )


def settings_as_yml(settings: MergedSettings) -> str:
    """Return the settings of a table among merged values, as yml with one line for each."""
    entries = [
        (yaml.ScalarNode("tag:yaml.org,2002:str", key), _on_one_line(node))
        for key, node in settings.nodes.items()
        if key in SETTINGS
    ]
    if not entries:
        return ""
    top = yaml.MappingNode("tag:yaml.org,2002:map", entries, flow_style=False)
    return str(yaml.serialize(top, Dumper=_DUMPER, allow_unicode=True, width=_WIDE))


_DUMPER: type = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def _on_one_line(node: yaml.Node) -> yaml.Node:
    """Return a copy of a node that is written on one line; plain values stay plain, for variables in them."""
    if isinstance(node, yaml.SequenceNode):
        return yaml.SequenceNode(node.tag, [_on_one_line(item) for item in node.value], flow_style=True)
    if isinstance(node, yaml.MappingNode):
        entries = [(_on_one_line(key), _on_one_line(value)) for key, value in node.value]
        return yaml.MappingNode(node.tag, entries, flow_style=True)
    assert isinstance(node, yaml.ScalarNode), "YAML has three kinds of nodes"
    plain = not node.style and "\n" not in node.value
    return yaml.ScalarNode(node.tag, node.value, style=None if plain else '"')


def _read_definitions(draft: _Draft) -> None:
    for path in draft.layout.tables:
        text = draft.files.get(path)
        if text is None or isinstance(text, UnreadableFile):
            # That is reported for headgate.yml or for the file itself.
            continue
        for statement, line, column in _statements_of(text):
            name = _table_of(statement, path, line, draft)
            if name is None:
                continue
            if name in draft.definitions:
                first = draft.definitions[name]
                remedy = f"keep one: the other is {first.path}:{first.line}"
                draft.report(Problem(f"{name} is declared twice", remedy, Where(path, line), name))
                continue
            draft.definitions[name] = _Definition(path, line, statement, column)


def _table_of(statement: str, path: str, line: int, draft: _Draft) -> TableName | None:
    found = _CREATE.match(statement)
    if found is None:
        words = " ".join(statement.split()[:2])[:40]
        remedy = "write CREATE TABLE <table> (<column> <type>, …) USING <format>;"
        draft.report(
            Problem(f"a file of table definitions contains CREATE TABLE, not {words}", remedy, Where(path, line))
        )
        return None
    written = re.split(r"\s*\.\s*", found["name"])
    try:
        return parse_table_name(written[-1])
    except BadName as error:
        draft.report(Problem(error.summary, error.remedy, Where(path, line), written[-1]))
        return None


def _statements_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each statement of SQL without the comments before it, with its line and the number of columns before it.

    SQL is not parsed here. What is not closed belongs to the last statement, for which the parser reports it.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    plain = PIECES.sub(lambda piece: piece[0] if piece["open"] else _blank(piece[0]), text)
    begin = 0
    for end in [*(found.start() for found in re.finditer(";", plain)), len(text)]:
        if plain[begin:end].strip():
            start = _first(plain, text, begin, end)
            line_start = text.rfind("\n", 0, start) + 1
            yield text[start:end].rstrip(), text.count("\n", 0, start) + 1, start - line_start
        begin = end + 1


def _blank(piece: str) -> str:
    """Hide a comment, and what is quoted, but not that something is quoted."""
    return re.sub(r"[^\n]", " " if piece.startswith(("--", "/*")) else "x", piece)


def _first(plain: str, text: str, begin: int, end: int) -> int:
    found = re.compile(r"\S").search(plain, begin, end)
    return found.start() if found else begin


def _generate_external(draft: _Draft) -> None:
    """Generate the folders of tables that no manifest writes, with the yml beside the file that declares them."""
    settings = {path for path in draft.files if draft.layout.is_settings(path)}
    for table, found in draft.definitions.items():
        if table in draft.declared:
            continue
        folder = f"pipelines/sources/{PRODUCT}/{table}"
        _generate_ddl(table, folder, draft)
        path = _beside(found.path, table)
        if path in settings:
            settings.discard(path)
            text = draft.files[path]
            draft.add(f"{folder}/{table}.yml", text, [TextPart(1, path, 1)])
    for path in sorted(settings):
        stem = path.rpartition("/")[2].rpartition(".")[0]
        if stem in draft.declared:
            manifest = draft.manifests.get(draft.declared[TableName(stem)], "the definitions")
            draft.report(
                Problem(
                    f"{path} is ignored, because {stem} has its settings elsewhere",
                    f"move them to {manifest}",
                    Where(path),
                )
            )
        elif "/" in path:
            near = did_you_mean(stem, draft.definitions) or "give it the name of an external table, or move it away"
            draft.report(Problem(f"{path} matches no external table", near, Where(path), severity=Severity.WARNING))


def _beside(path: str, table: TableName) -> str:
    folder = path.rpartition("/")[0]
    return f"{folder}/{table}.yml" if folder else f"{table}.yml"
