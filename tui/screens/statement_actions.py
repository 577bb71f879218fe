"""Actions on statements for the tree, list and detail screens.

A confirmation dialog fixes the targets of its action.
"""

from collections.abc import Sequence
from functools import partial, partialmethod

from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.run.stopped_statement_sentences import stop_words
from core.text.wording import did_you_mean
from tui.presentation.interaction.action_availability import ActionContext, action_context_of, staged_by_user
from tui.presentation.interaction.confirmation_dialogs import ActionSummary, dialog_for_stage, dialog_for_statements
from tui.presentation.interaction.keymap import command_of_action, find_action
from tui.presentation.screen_content.screen_frame import act_answer, stage_answer, unstage_answer
from tui.presentation.styling.value_formatting import short_duration
from tui.presentation.view.ledger_view import downstream_of
from tui.screens.backend import ProjectView
from tui.screens.console_screen import ConsoleScreen
from tui.screens.console_state import ConsoleState

STAGED_UNASKED = 5
"""Maximum number of tables that one key stages without a question. A branch may contain hundreds of tables."""


class StatementActionsScreen(ConsoleScreen):
    """A screen that shows statements and offers actions on them."""

    named: tuple[str, ...] = ()
    """Tables named by a `:` command. They take precedence over cursor and marked tables."""

    def targets(self) -> tuple[str, ...]:
        """Return the tables to which an action would apply now: the marked tables or those under the cursor."""
        return ()

    def under_cursor(self) -> tuple[str, ...]:
        """Return the tables under the cursor, even if other tables are marked."""
        return self.targets()

    def undone_by_default(self) -> str:
        """Return the plan or run that `:undo` undoes by default; empty for the latest run."""
        return ""

    def rolled_back_by_default(self) -> tuple[str, ...]:
        """Return the tables or the run that `:rollback` rolls back by default."""
        return self.acted_on()

    def view_targets(self) -> tuple[str, ...]:
        """Return the tables to show: those named by a `:` command, else those under the cursor."""
        return self.named or self.under_cursor()

    def action_targets(self) -> tuple[str, ...]:
        """Return the tables of the current action: those named by a `:` command, else the screen's targets."""
        return self.named or self.targets()

    def action_context(self) -> ActionContext:
        state = self.state
        return action_context_of(
            state.view,
            self.action_targets(),
            viewed=self.view_targets(),
            user=state.identity.user,
            fresh=state.freshness,
            access=state.access,
            read_only=state.read_only,
        )

    def copy_text(self) -> str:
        return "\n".join(self.targets())

    def copy_line(self) -> str:
        action = find_action("detail", "home")
        targets = self.view_targets()
        if action is None or not targets:
            return super().copy_line()
        environment = self.state.identity.environment
        if len(targets) > 1:
            return f"headgate ls {' '.join(targets)} --env {environment}"
        return command_of_action(action, tables=targets, environment=environment)

    def hidden(self, targets: Sequence[str]) -> frozenset[str]:
        """Return the targets that are not visible on this screen."""
        return frozenset()

    def acted_on(self) -> tuple[str, ...]:
        """Return the target tables of the current action, except external tables, which Headgate never changes."""
        statements = self.state.view.statements
        return tuple(
            name
            for name in self.action_targets()
            if (found := statements.get(TableName(name))) is None or not found.external
        )

    def _ask(self, verb: str, key: str) -> None:
        targets, state, identity = self.acted_on(), self.state, self.state.identity
        # The `:` command can be typed on any screen, and the keymap of the tree contains all actions on statements.
        action = find_action(verb, "home")
        assert action is not None
        age = state.freshness.age_s
        snapshot = state.view.snapshot
        besides = stop_words(snapshot.statements, snapshot.open_runs, targets) if verb == "stop" else ()
        facts = ActionSummary(
            verb=verb,
            targets=targets,
            hidden=self.hidden(targets),
            downstream=downstream_of(state.view, targets),
            environment=identity.title,
            command=command_of_action(action, tables=targets, environment=identity.environment),
            data="data of unknown age" if age is None else f"data {short_duration(age)} old",
            expected=state.backend.agent.confirmation(verb, targets).text,
            besides=tuple(besides),
        )

        def send(typed: str) -> None:
            state.host.run_in_thread(
                partial(state.backend.agent.act, verb, targets, confirm=typed),
                lambda answers: self.show_answer(act_answer(verb, answers)),
                progress=f"{verb} {', '.join(targets[:3])}{' …' if len(targets) > 3 else ''}: sent",
            )

        self.question.ask(dialog_for_statements(facts), send)

    do_stop = partialmethod(_ask, "stop")
    do_start = partialmethod(_ask, "start")
    do_restart = partialmethod(_ask, "restart")

    def show_answer(self, words: str) -> None:
        """Show the agent's answer to an action, and reread everything."""
        self.state.notify(words)
        self.state.host.read_now()

    def do_stage_deploy(self, key: str) -> None:
        self._stage(self.action_targets(), "deploy")

    def do_stage_hold(self, key: str) -> None:
        self._stage(self.action_targets(), "hold")

    def do_stage_delete(self, key: str) -> None:
        self._stage(self.acted_on(), "delete")

    def _stage(self, targets: Sequence[str], verb: str) -> None:
        state, deployed = self.state, frozenset(name for name in targets if self.state.view.statement(name))

        def work() -> str:
            project = state.backend.project()
            refuse_undeclared(state, project, [name for name in targets if name not in deployed])
            differ = {one.table for one in project.drift}
            compared = verb != "delete" and not project.missing
            same = [name for name in targets if compared and name in deployed and name not in differ]
            wanted = held_targets(state, targets, same) if verb == "hold" else targets
            state.backend.agent.stage(wanted, verb=verb)
            return stage_answer(verb, wanted, self.screen_name, unchanged=same)

        def stage(typed: str = "") -> None:
            state.host.run_in_thread(work, self.show_answer)

        if len(targets) > STAGED_UNASKED:
            self.question.ask(dialog_for_stage(verb, targets, state.identity.title), stage)
        else:
            stage()

    def do_unstage(self, key: str) -> None:
        targets = staged_by_user(self.state.view, self.state.identity.user, self.action_targets())
        agent = self.state.backend.agent
        self.state.host.run_in_thread(lambda: unstage_answer(agent.unstage(targets)), self.show_answer)

    def plan_staged(self) -> None:
        """Plan the changes that this user has staged, and open the review of the plan."""
        state = self.state

        def review(plan_hash: str) -> None:
            self.open_when_free("review", f"the plan is ready: :review {plan_hash[:12]}", plan_hash=plan_hash)

        submit = partial(state.backend.submit, state.identity.user)
        state.host.run_in_thread(submit, review, progress="planning what is staged")

    def open_tab(self, tab: str) -> None:
        """Open a tab of the statement being viewed."""
        self.state.host.open_screen("detail", table=self.view_targets()[0], tab=tab)

    def do_detail(self, key: str) -> None:
        self.open_tab("overview")

    def do_sql(self, key: str) -> None:
        self.open_tab("sql")

    def do_lineage(self, key: str) -> None:
        self.open_tab("lineage")

    def do_history(self, key: str) -> None:
        self.open_tab("history")

    def do_rows(self, key: str) -> None:
        self.state.host.open_screen("rows", table=self.view_targets()[0])

    def do_edit(self, key: str) -> None:
        """Edit the statement's SQL file, then show how the files differ from what is deployed."""
        (table,) = self.view_targets()
        host = self.state.host

        def edit(path: str) -> None:
            if self.is_free and host.edit_file(path):
                host.read_now()
                if self.screen_name != "changes":
                    self.named = (table,)
                    self.open_tab("sql")
                    self.named = ()

        host.run_in_thread(lambda: self.state.backend.sql_file(table), edit)

    def do_events(self, key: str) -> None:
        targets = self.view_targets()
        if len(targets) == 1:
            self.open_tab("events")
        else:
            self.state.host.open_screen("events", tables=targets)


def held_targets(state: ConsoleState, targets: Sequence[str], unchanged: Sequence[str]) -> Sequence[str]:
    """Return the targets that have a new version to hold.

    Raises Refused if there are targets, but none of them can be held.
    """
    known = {name: state.view.statement(name) for name in targets}
    external = [name for name, found in known.items() if found is not None and found.external]
    wanted = [name for name in targets if name not in external and name not in unchanged]
    if wanted or not targets:
        return wanted
    name = targets[0]
    if name in external:
        raise Refused(
            f"{name} is external: Headgate only reads it, so there is no version to hold", remedy="leave it out"
        )
    words = f"{name} is deployed as declared, so there is no new version to hold"
    raise Refused(words, remedy=f"edit it, or rebuild it: headgate plan {name} --rebuild --hold")


def refuse_undeclared(state: ConsoleState, project: ProjectView, undeployed: Sequence[str]) -> None:
    """Raise UsageError if one of the `undeployed` tables is not declared in the project folder."""
    declared = project.declared | {one.table for one in project.drift}
    unknown = [name for name in undeployed if name not in declared]
    if unknown:
        known = declared | set(state.view.statements)
        if project.missing:
            raise UsageError(f"{unknown[0]} is not deployed, and the files cannot be read", remedy=project.missing)
        raise UsageError(
            f"there is no table {unknown[0]}",
            remedy=did_you_mean(unknown[0], known) or ":changes lists what is declared and not deployed",
        )
