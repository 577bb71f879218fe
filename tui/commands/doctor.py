"""The command `doctor`: checks whether Headgate can run here, and suggests remedies."""

from collections.abc import Sequence

from core.model.errors import UsageError
from tui.command_line.context import CommandContext
from tui.project_folder.environment_selection import SelectedEnvironment, find_folder
from tui.services import doctor_checks
from tui.services.doctor_checks import DoctorCheck


def doctor(context: CommandContext) -> int:
    """Check the machine and, in a project, the project and the environment. Returns 1 if a check fails."""
    if context.args.paths:
        return _paths(context, context.place)
    folder = _folder(context)
    project = doctor_checks.check_project(folder) if folder else None
    place = _place(context, project)
    checks = list(doctor_checks.check_machine(context.environ, place.data if place else context.cwd, place))
    if project and project.ok and place:
        project = doctor_checks.check_tables(folder, context.operations.projects.read)
    checks += [project] if project else []
    if project and project.ok and place:
        checks += doctor_checks.check_inputs(context.environ, place, context.operations.projects.read)
        names = doctor_checks.check_names(place, context.operations.client, context.operations.projects.read)
        checks += [names] if names else []
    if place:
        checks += [doctor_checks.check_home(place), doctor_checks.check_agent(place, context.operations.client)]
        checks += [doctor_checks.check_data(place, context.operations.client)]
        checks += [*doctor_checks.check_pools(place), doctor_checks.check_ledger(place)]
        checks += [check for check in (doctor_checks.check_servers(place), doctor_checks.check_logout(place)) if check]
    left = doctor_checks.check_ephemeral(context.environ)
    checks += [left] if left else []
    failed = [check for check in checks if not check.ok]
    why = "no project here" if project is None else "the project cannot be read"
    unchecked = [] if place else [f"{why}: home, agent, pool and ledger were not checked"]
    body = {"ok": not failed, "checks": [check.as_json() for check in checks]}
    context.output.answer(body, *unchecked, lines=check_lines(checks))
    return 1 if failed else 0


def check_lines(checks: Sequence[DoctorCheck]) -> list[str]:
    """Return a line for each check, followed by its remedy or by the remedies of the problems that it lists."""
    lines = []
    for check in checks:
        word = "FAIL" if not check.ok else "note" if check.warning else "ok"
        lines.append(f"{word:<5}{check.name:<10}{check.summary}")
        listed = check.facts.get("problems", ())[: doctor_checks.SHOWN_PROBLEMS]
        remedies = dict.fromkeys([*(str(problem["remedy"]) for problem in listed), check.remedy])
        lines += [f"{'':<15}→ {remedy}" for remedy in remedies if remedy]
    return lines


def _folder(context: CommandContext) -> str:
    named = getattr(context.args, "project", None)
    try:
        return find_folder(context.environ, context.cwd, project=named)
    except UsageError:
        if named or getattr(context.args, "env", None):
            raise
        return ""


def _place(context: CommandContext, project: DoctorCheck | None) -> SelectedEnvironment | None:
    """Return the selected environment; None without a project, or if headgate.yml is too broken to select one."""
    if project is None:
        return None
    try:
        return context.place
    except UsageError:
        if project.ok:
            raise
        return None


def _paths(context: CommandContext, place: SelectedEnvironment) -> int:
    where = place.where
    names = ("home", "ledger", "socket", "lock", "agent_log", "pool_log", "pool_file", "emergency")
    paths = {"project": place.folder, "data": place.data} | {name: getattr(where, name) for name in names}
    context.output.answer(paths, lines=[f"{name:<12}{path}" for name, path in paths.items()])
    return 0
