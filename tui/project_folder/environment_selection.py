"""Selects a command's project and environment, reading as little of headgate.yml as possible."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from core.ipc.environment_paths import EnvironmentPaths, environment_home, environment_paths
from core.model.errors import HeadgateError, InvalidProject, Refused, UsageError, VersionMismatch
from core.model.names import environment_words, is_environment_name, up_command
from core.project.data_folder import absolute_data_folder
from core.project.manifest_head import ManifestHead
from core.project.overlay import PROJECT_FOLDER, Overlay
from core.text.escaping import escape_surrogates
from state.overlay_files import overlays_beside, read_overlay
from tui.project_folder.manifest_head_cache import PROJECT_FILE, last_manifest_head, read_manifest_head


@dataclass(frozen=True, slots=True)
class SelectedEnvironment:
    """One environment of one project on this machine. All operations of a command apply to it."""

    folder: str
    """Absolute path of the project folder."""
    project: str
    project_id: str
    environment: str
    protected: bool
    where: EnvironmentPaths
    colour: str = ""
    """Declared colour of the environment's name; empty for the default."""
    data: str = ""
    """Absolute path of the folder with tables, checkpoints and landed files."""
    broken: str = ""
    """The error in headgate.yml; empty if valid. With an error, the last valid version is used and every environment is
    protected.
    """
    declared: bool = True
    """False if headgate.yml no longer declares the environment, which has a ledger here: it can be read and stopped."""
    overlay: Overlay | None = None
    """What the environment overlays; None unless `headgate up --from` created it."""

    @property
    def title(self) -> str:
        """The environment's name in messages, such as `pizzeria PROD protected` or `pizzeria pr-1 over dev`."""
        return f"{self.project} {environment_words(self.environment, protected=self.protected, base=self.base)}"

    @property
    def base(self) -> str:
        """The environment that this one overlays; empty for none."""
        return self.overlay.base if self.overlay is not None else ""

    @property
    def start(self) -> str:
        """The start position of new statements unless a request gives one; empty for the beginning of their sources."""
        since = self.overlay.since if self.overlay is not None else None
        if since is None:
            return ""
        from datetime import UTC, datetime

        from core.plan.request import SINCE

        return f"{SINCE}{datetime.fromtimestamp(int(since), UTC):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def up(self) -> str:
        """The command that starts the environment's agent."""
        of_overlay = f" --from {self.overlay.base}" if self.overlay is not None else ""
        return up_command(self.environment, protected=self.protected) + of_overlay

    @property
    def options(self) -> str:
        """The command-line options that select this environment from any folder."""
        return f"--project {self.folder} --env {self.environment}"


def select_environment(
    environ: Mapping[str, str], cwd: str, *, project: str | None = None, environment: str | None = None
) -> SelectedEnvironment:
    """Select the environment by options, HEADGATE_PROJECT, HEADGATE_ENV and headgate.yml.

    If headgate.yml is broken, its last valid version is used, so that a stop is still possible. For the same reason, an
    environment that it no longer declares is selected if its ledger has the data folder. Commands that read the whole
    project raise an error in both cases. Raises UsageError if nothing can be selected, and InvalidProject if
    headgate.yml is broken and no valid version is known.
    """
    folder = find_folder(environ, cwd, project=project)
    absolute = absolute_environ(environ, cwd)
    broken = ""
    try:
        head = read_manifest_head(absolute, folder)
    except InvalidProject as error:
        last, broken = last_manifest_head(absolute, folder), error.summary
        if last is None:
            raise
        head = last
    # An empty option is an unset variable in a script, not the default environment.
    name = environment if environment is not None else environ.get("HEADGATE_ENV") or head.default_env
    if name not in head.protected_by_name:
        if (generated := _generated_project(absolute, head, name)) and generated != folder:
            return select_environment(environ, cwd, project=generated, environment=name)
        if (undeclared := _undeclared(absolute, head, name, folder)) is not None:
            return replace(undeclared, broken=broken)
        known = ", ".join(head.protected_by_name) or "none"
        raise UsageError(f"{head.project} declares no environment {name!r}", remedy=f"give --env one of: {known}")
    where = _where(absolute, head, name)
    overlay = _overlay_of(where.home)
    data = absolute_data_folder(folder, head.data_by_name.get(name, "data"), os.path.realpath)
    refuse_undecodable(f"the data folder of {name}", data)
    return SelectedEnvironment(
        folder=folder,
        project=head.project,
        project_id=head.id,
        environment=name,
        protected=head.protected_by_name[name] or _is_recorded_protected(where),
        where=where,
        colour=head.colour_by_name.get(name, ""),
        data=data,
        broken=broken,
        overlay=overlay,
    )


def _undeclared(environ: Mapping[str, str], head: ManifestHead, name: str, folder: str) -> SelectedEnvironment | None:
    """Return an environment that only its ledger describes; None unless this project's ledger has its data folder."""
    if not name or os.path.basename(name) != name or name in (os.curdir, os.pardir):
        return None
    where = _where(environ, head, name)
    if not os.access(where.ledger, os.R_OK):
        return None
    from state.ledger import LedgerReader

    try:
        with LedgerReader(Path(where.ledger)) as reader:
            facts = reader.facts()
    except HeadgateError:
        return None
    if facts.serves is None or (facts.project_id, facts.environment) != (head.id, name):
        return None
    return SelectedEnvironment(
        folder=folder,
        project=head.project,
        project_id=head.id,
        environment=name,
        protected=facts.protected,
        where=where,
        data=facts.serves.data,
        declared=False,
    )


def refuse_undeclared(place: SelectedEnvironment) -> None:
    """Raise UsageError if headgate.yml no longer declares the environment."""
    if not place.declared:
        name = place.environment
        raise UsageError(
            f"{PROJECT_FILE} no longer declares {name}: it can be read, stopped and ended, but not planned",
            remedy=f"declare it again, or end it: headgate down --env {name}",
        )


def _generated_project(environ: Mapping[str, str], head: ManifestHead, name: str) -> str:
    """Return the project folder of an overlay that headgate.yml does not declare; empty if there is none."""
    if not is_environment_name(name):
        return ""
    home = environment_home(environ, project=head.project, project_id=head.id, environment=name)
    folder = os.path.join(os.path.realpath(home), PROJECT_FOLDER)
    return folder if os.path.isfile(os.path.join(folder, PROJECT_FILE)) else ""


def _overlay_of(home: str) -> Overlay | None:
    # A damaged file must not prevent a stop or a purge; `up --from` writes it again.
    try:
        return read_overlay(home)
    except HeadgateError:
        return None


def refuse_generated_project(folder: str, environment: str = "") -> None:
    """Raise UsageError if a folder is the generated project of an overlay other than `environment`."""
    name = os.path.basename(os.path.dirname(folder))
    if os.path.basename(folder) != PROJECT_FOLDER or name == environment:
        return
    if (overlay := _overlay_of(os.path.dirname(folder))) is not None:
        raise UsageError(
            f"{folder} is the generated project of the overlay {name}, and of no other environment",
            remedy=f"use the branch: --project {overlay.branch}",
        )


def _is_recorded_protected(where: EnvironmentPaths) -> bool:
    """True if the ledger records the environment as protected, even if another Headgate version wrote the ledger.

    False if the ledger cannot be read; the code that needs the ledger reports the error.
    """
    if not os.access(where.ledger, os.R_OK):
        return False
    from state.ledger import LedgerReader, says_protected

    try:
        try:
            with LedgerReader(Path(where.ledger)) as reader:
                return reader.facts().protected
        except VersionMismatch:
            return says_protected(Path(where.ledger))
    except HeadgateError:
        return False


def find_folder(environ: Mapping[str, str], cwd: str, *, project: str | None = None) -> str:
    """Return the folder given by the option or HEADGATE_PROJECT, or the nearest one, from `cwd` up, with headgate.yml.

    Raises UsageError if there is none, or if its path is not UTF-8, which ledger, Spark and JSON require.
    """
    folder = _nearest_folder(environ, cwd, project)
    refuse_undecodable("the project folder", folder)
    return folder


def refuse_undecodable(what: str, path: str) -> None:
    """Raise UsageError if a path contains bytes that are not UTF-8."""
    if (shown := escape_surrogates(path)) != path:
        raise UsageError(f"{what} {shown} is not UTF-8", remedy="rename it, or use another one")


def _nearest_folder(environ: Mapping[str, str], cwd: str, project: str | None) -> str:
    if project == "":
        raise UsageError("--project names no folder", remedy="give --project DIR")
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
    """Return the environment variables for child processes, with HEADGATE_HOME and XDG_STATE_HOME made absolute.

    Child processes run in `/`. Raises UsageError if the path of a folder that Headgate uses is not UTF-8.
    """
    changed = dict(environ)
    for name in ("HEADGATE_HOME", "XDG_STATE_HOME"):
        if changed.get(name):
            changed[name] = str(Path(cwd, changed[name]).expanduser().resolve())
    for name in ("HEADGATE_HOME",) if changed.get("HEADGATE_HOME") else ("XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"):
        refuse_undecodable(name, changed.get(name, ""))
    return changed


def has_ledger(place: SelectedEnvironment) -> bool:
    """True if the environment has ever been started here. Raises Refused if its home is not readable."""
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
    home = os.path.realpath(environment_home(environ, project=head.project, project_id=head.id, environment=name))
    try:
        owner = os.stat(home).st_uid
    except OSError:
        owner = os.getuid()
    return environment_paths(home, owner)


def environments_started(place: SelectedEnvironment, environ: Mapping[str, str]) -> dict[str, bool]:
    """Map each of the project's environments to whether it has a ledger here.

    Those of headgate.yml come in its order, then overlays. No ledger is opened, so none can delay the answer.
    """
    head = read_manifest_head(environ, place.folder)
    names = dict.fromkeys((*head.protected_by_name, *overlays_beside(place.where.home)))
    return {name: os.path.exists(_where(environ, head, name).ledger) for name in names}
