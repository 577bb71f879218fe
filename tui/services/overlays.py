"""Overlays: environments for a branch, which `headgate up --from` creates and which read another environment."""

import fcntl
import getpass
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.ipc.environment_paths import environment_home
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError
from core.model.names import TableName
from core.model.states import WantedState
from core.observed.versions import Deployment
from core.project.data_folder import absolute_data_folder
from core.project.manifest_head import ManifestHead
from core.project.overlay import (
    DEFAULT_LIFETIME_S,
    LOCK_FILE,
    OVERLAY_FILE,
    PROJECT_FOLDER,
    Overlay,
    overlay_as_text,
    overlay_prefix,
)
from core.project_reader.loader import read_project
from core.project_reader.overlay_project import Base, OverlayProject, overlay_manifest, overlay_project
from core.project_reader.paths import is_jar
from core.text.wording import counted
from state.ledger import LedgerReader
from state.overlay_files import overlays_beside, read_overlay, versions_read_by_overlays
from state.promotion_source import open_source
from tui.project_folder.declaring_files import copy_jar
from tui.project_folder.environment_selection import (
    SelectedEnvironment,
    find_folder,
    refuse_generated_project,
    select_environment,
)
from tui.project_folder.manifest_head_cache import PROJECT_FILE, read_manifest_head
from tui.project_folder.project_folder_reader import ProjectDeclaration, ProjectReader
from tui.services.promotion import deployed_tables


@dataclass(frozen=True, slots=True)
class CreatedOverlay:
    """An overlay whose project has been generated; its agent may not run yet."""

    place: SelectedEnvironment
    project: OverlayProject
    overlay: Overlay
    behind: Mapping[TableName, int]
    """The version that now serves in the base, for each table of which the overlay reads an older one."""


def create_overlay(
    environ: Mapping[str, str],
    cwd: str,
    *,
    project: str | None,
    environment: str,
    base: str,
    expires_s: float | None,
    since_s: float | None,
    now: float,
) -> CreatedOverlay | None:
    """Generate the project of an overlay from the branch in a project folder, or generate it again.

    An existing overlay keeps the versions that it reads, and its end unless `expires_s` is given. Returns None, and
    creates nothing, if the branch declares what the base runs. Raises UsageError or Refused if the overlay cannot be
    created, and InvalidProject with all Problems of the branch.
    """
    folder = find_folder(environ, cwd, project=project)
    head = read_manifest_head(environ, folder)
    refuse_generated_project(folder)
    home = environment_home(environ, project=head.project, project_id=head.id, environment=environment)
    prefix = _checked_prefix(environment, base, head, overlays_beside(home))
    source = _read_source(environ, cwd, folder, base)
    declared, reads = source.declared, source.base
    before = _existing(home, source.place, environment, again=since_s is None)
    home = os.path.realpath(home)
    pinned, deleted = _pinned(source.place, before)
    found = overlay_project(declared.project, declared.texts, reads, pinned, _built_before(home, before))
    if gone := sorted(deleted.keys() & {*found.inherited, *found.built}):
        raise Refused(
            f"{base} has deleted {gone[0]}@v{deleted[gone[0]]}, which {environment} reads",
            remedy=f"headgate down --env {environment} --purge, then headgate up --env {environment} again",
        )
    if lost := sorted(pinned.keys() & set(found.built)):
        raise Refused(
            f"{environment} reads {lost[0]} of {base}, and now has to build it, because the branch changes it",
            remedy=f"begin again: headgate down --env {environment} --purge, then headgate up --env {environment} …",
        )
    if not found.built and before is None:
        return None
    manifest = _manifest(source, environment, prefix)
    overlay = Overlay(
        base=base,
        base_home=source.place.where.home,
        base_data=source.data,
        branch=folder,
        created_at=now,
        created_by=getpass.getuser(),
        expires_at=now + (DEFAULT_LIFETIME_S if expires_s is None else expires_s),
        since=now - since_s if since_s is not None else None,
        inherited=found.inherited,
    )
    if before is not None:
        overlay = _continued(before, overlay, ends=expires_s is not None)
    _check(found, manifest, environment)
    _write(home, {**found.texts, PROJECT_FILE: manifest}, overlay)
    place = select_environment(environ, cwd, project=str(Path(home, PROJECT_FOLDER)), environment=environment)
    newer = {name: reads.serving[name].version for name in found.inherited if name in reads.serving}
    behind = {name: version for name, version in newer.items() if version != found.inherited[name]}
    return CreatedOverlay(place, found, overlay, behind)


@dataclass(frozen=True, slots=True)
class _Source:
    """The branch with the variables of the base, and the base as its ledger describes it."""

    place: SelectedEnvironment
    declared: ProjectDeclaration
    base: Base
    data: str
    """Absolute path of the base's data folder."""


def _manifest(source: _Source, environment: str, prefix: str) -> str:
    """Return the headgate.yml of an overlay."""
    base, naming = source.place.environment, source.base.naming
    names = {"prefix": prefix} | {key: value for key in ("catalog", "database") if (value := getattr(naming, key))}
    folders = {each.name: each.data for each in source.declared.project.environments.values()} | {base: source.data}
    return overlay_manifest(
        source.declared.texts[PROJECT_FILE],
        folder=source.place.folder,
        overlay=environment,
        base=base,
        data=folders,
        section={"data": f"{source.data}.{environment}", "naming": names},
    )


def _read_source(environ: Mapping[str, str], cwd: str, folder: str, base: str) -> _Source:
    there = select_environment(environ, cwd, project=folder, environment=base)
    if there.overlay is not None:
        raise UsageError(f"{base} overlays {there.overlay.base} itself", remedy=f"give --from {there.overlay.base}")
    declared = ProjectReader(there, environ).read()
    with closing(open_source(there.where.ledger, base, there.project_id)) as reader:
        serving, served = deployed_tables(reader), reader.facts().serves
    # Another checkout may have started the agent of the base.
    data = (served.data if served is not None else there.data).rstrip("/")
    known = declared.project.environments[base]
    sources = absolute_data_folder(folder, known.sources.data, os.path.realpath) if known.sources.data else data
    return _Source(there, declared, Base(base, known.naming, sources, serving), data)


def _existing(home: str, base: SelectedEnvironment, environment: str, *, again: bool) -> Overlay | None:
    """Return the overlay that a home has; None if there is no home, or if the overlay's file is damaged.

    Raises Refused if the home is that of another environment, if the overlay reads another base, or unless it may be
    generated `again`.
    """
    if os.path.islink(home):
        raise Refused(f"the home {home} is a link", remedy="give --env another name")
    try:
        before = read_overlay(home)
    except HeadgateError:
        return None
    if before is None and os.path.exists(os.path.join(home, "ledger.db")):
        raise Refused(
            f"{environment} is an environment of its own, with a ledger in {home}",
            remedy="give --env another name; headgate env lists the environments that exist",
        )
    if before is not None and before.base != base.environment:
        raise Refused(
            f"{environment} overlays {before.base}", remedy=f"headgate down --env {environment} --purge, then up again"
        )
    if before is not None and not again:
        raise Refused(
            f"{environment} exists, and its statements keep the positions at which they began",
            remedy=f"leave out --since, or begin again: headgate down --env {environment} --purge",
        )
    return before


def _checked_prefix(environment: str, base: str, head: ManifestHead, others: Iterable[str]) -> str:
    """Return the prefix of an overlay's names. Raises UsageError if no overlay can have its name.

    `others` are the overlays that exist, which may include this one.
    """
    if environment in head.protected_by_name:
        raise UsageError(
            f"{environment} is declared in {PROJECT_FILE}, so it cannot overlay {base}",
            remedy="--from creates an environment that no file declares, such as --env pr-123",
        )
    prefix = overlay_prefix(environment)
    others = [name for name in others if name != environment and overlay_prefix(name) == prefix]
    if others:
        raise UsageError(f"{environment} and {others[0]} would have the same names", remedy="give --env another name")
    if near := next((name for name in head.protected_by_name if name.lower() == environment.lower()), None):
        raise UsageError(f"{environment} differs from {near} only in case", remedy="give --env another name")
    return prefix


def _continued(before: Overlay, after: Overlay, *, ends: bool) -> Overlay:
    """Return an overlay that is generated again; it has a new end only if `ends`."""
    return replace(
        after,
        created_at=before.created_at,
        created_by=before.created_by,
        since=before.since,
        expires_at=after.expires_at if ends else before.expires_at,
        inherited={**before.inherited, **after.inherited},
    )


def _built_before(home: str, before: Overlay | None) -> frozenset[TableName]:
    """Return the tables that an existing overlay has built."""
    ledger = Path(home, "ledger.db")
    if before is None or not ledger.exists():
        return frozenset()
    with closing(LedgerReader(ledger)) as reader:
        return frozenset(table for table, each in deployed_tables(reader).items() if not each.external)


def _pinned(
    base: SelectedEnvironment, before: Overlay | None
) -> tuple[dict[TableName, Deployment], dict[TableName, int]]:
    """Return the versions that an overlay reads, and the numbers of those that the base has deleted."""
    found: dict[TableName, Deployment] = {}
    deleted: dict[TableName, int] = {}
    with closing(open_source(base.where.ledger, base.environment, base.project_id)) as reader:
        for table, version in (before.inherited if before is not None else {}).items():
            deployment = reader.deployment(table, version)
            if deployment is None or deployment.deleted:
                deleted[table] = version
            else:
                found[table] = deployment
    return found, deleted


def _check(found: OverlayProject, manifest: str, environment: str) -> None:
    """Raise InvalidProject if the generated project is not valid, which nobody could correct in its files."""
    read, problems = read_project({**found.texts, PROJECT_FILE: manifest}, environment=environment)
    if read is None:
        raise InvalidProject(
            f"the branch has no valid overlay: {problems[0].summary}",
            remedy=problems[0].remedy,
            problems=tuple(problem.as_json() for problem in problems),
        )


def _write(home: str, texts: Mapping[str, str], overlay: Overlay) -> None:
    """Write the overlay's file, then the project. A kill in between leaves what `up --from` writes again.

    Only one process writes at a time.
    """
    folder, new, old = (Path(home, f"{PROJECT_FOLDER}{end}") for end in ("", ".new", ".old"))
    try:
        os.makedirs(home, mode=0o2750, exist_ok=True)
        with open(Path(home, LOCK_FILE), "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in (new, old):
                shutil.rmtree(left, ignore_errors=True)
            for path, text in texts.items():
                file = new / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if is_jar(path):
                    copy_jar(Path(overlay.branch, path), text, file)
                else:
                    file.write_text(text, encoding="utf-8")
            # It may contain the address of a pool with a token.
            shutil.copymode(Path(overlay.branch, PROJECT_FILE), new / PROJECT_FILE)
            fresh = Path(home, f"{OVERLAY_FILE}.new")
            with open(fresh, "w", encoding="utf-8") as written:
                written.write(overlay_as_text(overlay))
                written.flush()
                os.fsync(written.fileno())
            fresh.replace(Path(home, OVERLAY_FILE))
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise HeadgateError(
            f"the overlay's project cannot be written to {home}: {error.strerror or error}",
            remedy="free space there, or set HEADGATE_HOME to a folder that you own",
        ) from error


@dataclass(frozen=True, slots=True)
class ReplacedInput:
    """A version that an overlay reads although its base serves another one, or none."""

    table: TableName
    version: int
    serving: int
    """The version that serves in the base; 0 if the base has deleted the table."""
    gets_rows: bool
    """True if the statement of the version that the overlay reads should still be running."""


def replaced_inputs(overlay: Overlay, project_id: str) -> tuple[ReplacedInput, ...]:
    """Return the versions that an overlay reads and that do not serve any more, by table.

    Raises UsageError or Refused if there is no ledger of the base, or if it may not be read.
    """
    found = []
    with closing(open_source(f"{overlay.base_home}/ledger.db", overlay.base, project_id)) as reader:
        serving = deployed_tables(reader)
        for table, version in sorted(overlay.inherited.items()):
            now = serving[table].version if table in serving else 0
            if now != version:
                read = reader.deployment(table, version)
                runs = read is not None and not read.deleted and read.wanted == WantedState.RUNNING
                found.append(ReplacedInput(table, version, now, runs))
    return tuple(found)


def environments_reading(place: SelectedEnvironment) -> dict[str, tuple[TableName, ...]]:
    """Return the other environments of the project that read tables in an environment's data folder, with the tables.

    An overlay counts from its creation on. An environment whose ledger cannot be read is left out.
    """
    found: dict[str, tuple[TableName, ...]] = {}
    for table, readers in sorted(versions_read_by_overlays(place.where.home).items()):
        for name, _ in readers:
            found[name] = (*found.get(name, ()), table)
    inside = f"{place.data.rstrip('/')}/tables/"
    homes = Path(place.where.home).parent
    for ledger in sorted(homes.glob("*/ledger.db")):
        if ledger.parent == Path(place.where.home):
            continue
        with suppress(HeadgateError), closing(LedgerReader(ledger)) as reader:
            read = {each.table for each in reader.deployments() if each.external and each.folder.startswith(inside)}
            if read:
                found[ledger.parent.name] = tuple(sorted({*found.get(ledger.parent.name, ()), *read}))
    return found


def refuse_while_read(place: SelectedEnvironment) -> None:
    """Raise Refused if another environment reads tables that a purge of this one would delete."""
    if found := environments_reading(place):
        name, tables = next(iter(found.items()))
        more = f", and {counted(len(found) - 1, 'more environment')} read others" if len(found) > 1 else ""
        raise Refused(
            f"{name} reads {', '.join(tables[:3])}{' and others' * (len(tables) > 3)} of {place.environment}{more}",
            remedy=f"first delete what reads it: headgate down --env {name} --purge",
        )
