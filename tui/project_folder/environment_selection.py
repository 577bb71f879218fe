"""Which project and which environment a command is about, found without reading more of headgate.yml than it must.

Nothing here parses YAML or SQL: `headgate ls` must answer in a fraction of a second. Whatever is read here by pattern
is compared with the real reading as soon as a command makes one (`projects.parse`).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.ipc.environment_paths import EnvironmentPaths, environment_paths
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError

PROJECT_FILE = "headgate.yml"

_TOP = re.compile(r"(?P<key>project|id|default_env)\s*:\s*(?P<value>[^#\n]+?)\s*(?:#.*)?\Z")
_ENTRY = re.compile(r"(?P<indent> +)(?P<key>[A-Za-z_][\w-]*)\s*:(?P<rest>.*)\Z")
_DATA = re.compile(r"\bdata\s*:\s*(?P<value>[^,#}\n]+)")
_TRUE = re.compile(r"\bprotected\s*:\s*(?:true|yes|on)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ManifestHead:
    """The few facts of headgate.yml that say which environment is meant."""

    project: str
    id: str
    default_env: str
    protected_by_name: Mapping[str, bool] = field(default_factory=dict)
    """Declared environments, in the order of the file."""
    data_by_name: Mapping[str, str] = field(default_factory=dict)
    """Their data folders, as written, where one is."""


@dataclass(frozen=True, slots=True)
class SelectedEnvironment:
    """One environment of one project on this machine: what every operation is bound to."""

    folder: str
    """Absolute project folder."""
    project: str
    project_id: str
    environment: str
    protected: bool
    where: EnvironmentPaths
    data: str = ""
    """Absolute folder of tables, checkpoints and landed files."""

    @property
    def title(self) -> str:
        """How every act names where it acts: `pizzeria PROD protected`, `pizzeria dev`."""
        return (
            f"{self.project} {self.environment.upper()} protected"
            if self.protected
            else f"{self.project} {self.environment}"
        )

    @property
    def options(self) -> str:
        """The options that make a command mean this place from any folder."""
        return f"--project {self.folder} --env {self.environment}"


def select_environment(
    environ: Mapping[str, str], cwd: str, *, project: str | None = None, environment: str | None = None
) -> SelectedEnvironment:
    """Bind to the environment that options, HEADGATE_PROJECT, HEADGATE_ENV and headgate.yml name; raises UsageError."""
    folder = find_folder(environ, cwd, project=project)
    head = read_manifest_head(folder)
    name = environment or environ.get("HEADGATE_ENV") or head.default_env
    if name not in head.protected_by_name:
        known = ", ".join(head.protected_by_name) or "none"
        raise UsageError(f"{head.project} declares no environment {name!r}", remedy=f"give --env one of: {known}")
    where = _where(absolute_environ(environ, cwd), head, name)
    return SelectedEnvironment(
        folder=folder,
        project=head.project,
        project_id=head.id,
        environment=name,
        protected=head.protected_by_name[name] or _is_recorded_protected(where),
        where=where,
        data=str(Path(folder, head.data_by_name.get(name, "data")).resolve()),
    )


def _is_recorded_protected(where: EnvironmentPaths) -> bool:
    """Return whether the ledger says so, whatever the file says now;
    one that cannot be read is told by what needs it.
    """
    if not os.access(where.ledger, os.R_OK):
        return False
    from state.ledger import LedgerReader

    try:
        with LedgerReader(Path(where.ledger)) as reader:
            return reader.facts().protected
    except HeadgateError:
        return False


def find_folder(environ: Mapping[str, str], cwd: str, *, project: str | None = None) -> str:
    """Find the project folder: the option, else HEADGATE_PROJECT, else the nearest headgate.yml upwards."""
    named = project or environ.get("HEADGATE_PROJECT")
    if named:
        folder = Path(cwd, named).resolve()
        if not (folder / PROJECT_FILE).is_file():
            raise UsageError(
                f"{folder} has no {PROJECT_FILE}", remedy="name a project folder, or create one: headgate init"
            )
        return str(folder)
    here = Path(cwd).resolve()
    for folder in (here, *here.parents):
        if (folder / PROJECT_FILE).is_file():
            return str(folder)
    raise UsageError(
        f"no {PROJECT_FILE} in {here} or above it",
        remedy="go to a project folder or give --project DIR; to try Headgate on a sample: headgate demo",
    )


def absolute_environ(environ: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return the environment variables with HEADGATE_HOME and XDG_STATE_HOME made absolute: children run in `/`."""
    changed = dict(environ)
    for name in ("HEADGATE_HOME", "XDG_STATE_HOME"):
        if changed.get(name):
            changed[name] = str(Path(cwd, changed[name]).expanduser().resolve())
    return changed


def has_ledger(place: SelectedEnvironment) -> bool:
    """Return whether the environment was ever started here; raises Refused where its home is closed to this user."""
    try:
        os.stat(place.where.ledger)
    except PermissionError as error:
        raise Refused(
            f"{place.title} belongs to another user, and you may not read {place.where.home}",
            remedy="run this as its owner, or join the group of that folder",
        ) from error
    except OSError:
        return False
    return True


def _where(environ: Mapping[str, str], head: ManifestHead, name: str) -> EnvironmentPaths:
    """Locate an environment; the socket of one that another user serves is named after that user."""
    uid = os.getuid()
    where = environment_paths(environ, uid, project=head.project, project_id=head.id, environment=name)
    try:
        owner = os.stat(where.home).st_uid
    except OSError:
        return where
    return (
        where
        if owner == uid
        else environment_paths(environ, owner, project=head.project, project_id=head.id, environment=name)
    )


def started_environments(place: SelectedEnvironment, environ: Mapping[str, str]) -> tuple[str, ...]:
    """List the environments of a place's project that have a ledger here, in the order of headgate.yml."""
    names = read_manifest_head(place.folder).protected_by_name
    found = (select_environment(environ, place.folder, project=place.folder, environment=name) for name in names)
    return tuple(there.environment for there in found if os.path.exists(there.where.ledger))


def read_manifest_head(folder: str) -> ManifestHead:
    """Read a project's name, id and environments; raises UsageError with the missing key and the remedy."""
    path = Path(folder, PROJECT_FILE)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", remedy="check that it is a text file that you can read"
        ) from error
    head = parse_manifest_head(text)
    if not (head.project and head.id and head.default_env and head.protected_by_name):
        head = _read_slowly(folder, text)
    for key, value in (("project", head.project), ("id", head.id), ("default_env", head.default_env)):
        if not value:
            raise UsageError(
                f"{path} has no `{key}:` at the start of a line",
                remedy=f"write `{key}: …` on a line of its own, or create a project: headgate init",
            )
    return head


def _read_slowly(folder: str, text: str) -> ManifestHead:
    """Read what is written in another form than the usual one as YAML; raises InvalidProject with all Problems."""
    from core.model.problems import Problem
    from core.project_files.manifest import read_manifest
    from core.text.wording import counted

    problems: list[Problem] = []
    manifest = read_manifest(text, problems)
    errors = [problem for problem in problems if problem.severity.value == "error"]
    if errors:
        raise InvalidProject(
            f"{PROJECT_FILE} in {folder} has {counted(len(errors), 'problem')}, the first: {errors[0].summary}",
            remedy=errors[0].remedy,
            problems=tuple(problem.as_json() for problem in problems),
        )
    return ManifestHead(
        project=manifest.name,
        id=manifest.id,
        default_env=manifest.default_env,
        protected_by_name={environment.name: environment.protected for environment in manifest.environments},
        data_by_name={environment.name: environment.data for environment in manifest.environments},
    )


def parse_manifest_head(text: str) -> ManifestHead:
    """Read the head from a text by pattern; what is not found is empty."""
    values: dict[str, str] = {}
    environments: dict[str, bool] = {}
    data: dict[str, str] = {}
    block, level, current = "", 0, ""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace():
            block = line.partition(":")[0].strip()
            level = 0
            found = _TOP.match(line)
            if found:
                values[found["key"]] = found["value"].strip("\"'")
            continue
        entry = _ENTRY.match(line)
        if block != "environments" or not entry:
            continue
        level = level or len(entry["indent"])
        if len(entry["indent"]) == level:
            current = entry["key"]
            environments[current] = bool(_TRUE.search(entry["rest"]))
        elif _TRUE.match(line.strip()):
            environments[current] = True
        place = _DATA.search(entry["rest"] if len(entry["indent"]) == level else line)
        if place and current not in data:
            data[current] = place["value"].strip().strip("\"'")
    return ManifestHead(
        project=values.get("project", ""),
        id=values.get("id", ""),
        default_env=values.get("default_env", ""),
        protected_by_name=environments,
        data_by_name=data,
    )
