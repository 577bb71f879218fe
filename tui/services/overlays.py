"""Overlays: environments for a branch, which `headgate up --from` creates and which read another environment."""

import getpass
import os
import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from core.ipc.environment_paths import environment_home
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError
from core.model.names import TableName
from core.observed.versions import Deployment
from core.project.manifest_head import ManifestHead
from core.project.overlay import (
    DEFAULT_LIFETIME_S,
    OVERLAY_FILE,
    PROJECT_FOLDER,
    Overlay,
    overlay_as_text,
    overlay_prefix,
)
from core.project_reader.loader import read_project
from core.project_reader.overlay_project import Base, OverlayProject, overlay_manifest, overlay_project
from core.text.wording import counted
from state.ledger import LedgerReader
from state.overlay_files import read_overlay
from state.promotion_source import open_source
from tui.project_folder.environment_selection import (
    SelectedEnvironment,
    find_folder,
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
    prefix = _checked_prefix(environment, base, head)
    home = os.path.realpath(
        environment_home(environ, project=head.project, project_id=head.id, environment=environment)
    )
    source = _read_source(environ, cwd, folder, base)
    declared, reads, data = source.declared, source.base, source.data
    before = _existing(home, base, environment)
    pinned = _pinned(source.place, before, environment)
    found = overlay_project(declared.project, declared.texts, reads, pinned, _built_before(home, before))
    if lost := sorted(pinned.keys() & set(found.built)):
        raise Refused(
            f"{environment} reads {lost[0]} of {base}, and now has to build it, because the branch changes it",
            remedy=f"begin again: headgate down --env {environment} --purge, then headgate up --env {environment} …",
        )
    if not found.built and before is None:
        return None
    names = {"prefix": prefix} | {k: v for k in ("catalog", "database") if (v := getattr(reads.naming, k))}
    sections = {base: {"data": data}, environment: {"data": f"{data}.{environment}", "naming": names}}
    manifest = overlay_manifest(declared.texts[PROJECT_FILE], folder, environment, base, sections)
    overlay = Overlay(
        base=base,
        base_home=source.place.where.home,
        base_data=data,
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
    sources = str(Path(folder, known.sources.data).resolve()) if known.sources.data else data
    return _Source(there, declared, Base(base, known.naming, sources, serving), data)


def _existing(home: str, base: str, environment: str) -> Overlay | None:
    """Return the overlay that a home has, or None. Raises Refused if it reads another base."""
    before = read_overlay(home)
    if before is not None and before.base != base:
        raise Refused(
            f"{environment} overlays {before.base}", remedy=f"headgate down --env {environment} --purge, then up again"
        )
    return before


def _checked_prefix(environment: str, base: str, head: ManifestHead) -> str:
    """Return the prefix of an overlay's names. Raises UsageError if no overlay can have its name."""
    if environment in head.protected_by_name:
        raise UsageError(
            f"{environment} is declared in {PROJECT_FILE}, so it cannot overlay {base}",
            remedy="--from creates an environment that no file declares, such as --env pr-123",
        )
    prefix = overlay_prefix(environment)
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


def _pinned(base: SelectedEnvironment, before: Overlay | None, environment: str) -> dict[TableName, Deployment]:
    """Return the versions that an overlay reads. Raises Refused if the base has deleted one of them."""
    found = {}
    with closing(open_source(base.where.ledger, base.environment, base.project_id)) as reader:
        for table, version in (before.inherited if before is not None else {}).items():
            deployment = reader.deployment(table, version)
            if deployment is None or deployment.deleted:
                raise Refused(
                    f"{base.environment} has deleted {table}@v{version}, which {environment} reads",
                    remedy=f"headgate down --env {environment} --purge, then headgate up --env {environment} again",
                )
            found[table] = deployment
    return found


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
    """Write the project, then the overlay's file. A kill in between leaves a project that `up --from` writes again."""
    folder, new, old = (Path(home, f"{PROJECT_FOLDER}{end}") for end in ("", ".new", ".old"))
    try:
        os.makedirs(home, mode=0o2750, exist_ok=True)
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        for path, text in texts.items():
            file = new / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        fresh = Path(home, f"{OVERLAY_FILE}.new")
        fresh.write_text(overlay_as_text(overlay), encoding="utf-8")
        fresh.replace(Path(home, OVERLAY_FILE))
    except OSError as error:
        raise HeadgateError(
            f"the overlay's project cannot be written to {home}: {error.strerror or error}",
            remedy="free space there, or set HEADGATE_HOME to a folder that you own",
        ) from error


def environments_reading(place: SelectedEnvironment) -> dict[str, tuple[TableName, ...]]:
    """Return the other environments of the project that read tables in an environment's data folder, with the tables.

    An environment whose ledger cannot be read is left out.
    """
    found = {}
    inside = f"{place.data.rstrip('/')}/tables/"
    homes = Path(place.where.home).parent
    for ledger in sorted(homes.glob("*/ledger.db")):
        if ledger.parent == Path(place.where.home):
            continue
        with suppress(HeadgateError), closing(LedgerReader(ledger)) as reader:
            read = [each.table for each in reader.deployments() if each.external and each.folder.startswith(inside)]
            if read:
                found[ledger.parent.name] = tuple(sorted(read))
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
