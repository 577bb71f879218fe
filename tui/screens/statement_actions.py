"""Acts on statements, shared by the tree, the list and the detail: the ids are fixed when the question is put."""

from collections.abc import Sequence

from core.model.errors import UsageError
from core.model.names import TableName
from core.text.wording import did_you_mean
from tui.presentation.interaction.confirmation_dialogs import ActionSummary, dialog_for_statements
from tui.presentation.interaction.keymap import command_of_action, find_action
from tui.presentation.screen_content.agent_answers import act_answer, stage_answer, unstage_answer
from tui.presentation.styling.styled_text import Tone
from tui.presentation.styling.value_formatting import short_duration
from tui.presentation.view.downstream_readers import downstream_of, staged_by_user
from tui.screens.console_screen import ConsoleScreen


class StatementActionsScreen(ConsoleScreen):
    """A screen whose rows are statements."""

    def hidden(self, targets: Sequence[str]) -> frozenset[str]:
        """Return the targets that are not on screen."""
        return frozenset()

    def acted_on(self) -> tuple[str, ...]:
        """Return the targets without external tables: those are never touched."""
        statements = self.desk.world.statements
        return tuple(
            name for name in self.subjects() if (found := statements.get(TableName(name))) is None or not found.external
        )

    def _ask_for(self, verb: str) -> None:
        targets = self.acted_on()
        desk = self.desk
        confirmation = desk.operations.agent.confirmation(verb, targets)
        # Named after `:` it is asked for on any screen; the tree knows every act on statements.
        action = find_action(verb, "home")
        assert action is not None
        place = desk.place
        age = desk.fresh.age_s
        facts = ActionSummary(
            verb=verb,
            targets=targets,
            hidden=self.hidden(targets),
            downstream=downstream_of(desk.world, targets),
            environment=place.title,
            command=command_of_action(action, tables=targets, environment=place.environment),
            data="data of unknown age" if age is None else f"data {short_duration(age)} old",
            expected=confirmation.text,
        )

        def send(typed: str) -> None:
            desk.say(f"{verb} {', '.join(targets[:3])}{' …' if len(targets) > 3 else ''}: sent", Tone.CHANGING)
            acted = desk.operations.agent.act
            desk.host.perform(lambda: act_answer(verb, acted(verb, targets, confirm=typed)), self._said)

        self.ask(dialog_for_statements(facts), send)

    def _said(self, result: object) -> None:
        self.desk.say(str(result))
        self.desk.host.kick()

    def do_stop(self, key: str) -> None:
        self._ask_for("stop")

    def do_start(self, key: str) -> None:
        self._ask_for("start")

    def do_restart(self, key: str) -> None:
        self._ask_for("restart")

    def do_stage_deploy(self, key: str) -> None:
        self._stage(self.subjects(), "deploy")

    def do_stage_delete(self, key: str) -> None:
        self._stage(self.acted_on(), "delete")

    def _stage(self, targets: Sequence[str], verb: str) -> None:
        undeployed = [name for name in targets if self.desk.world.statement(name) is None]

        def work() -> str:
            if undeployed:
                self._refuse_undeclared(undeployed)
            self.desk.operations.agent.stage(targets, verb=verb)
            return stage_answer(verb, targets)

        self.desk.host.perform(work, self._said)

    def _refuse_undeclared(self, undeployed: Sequence[str]) -> None:
        """Raise UsageError for a name that is neither deployed nor declared in the project folder."""
        view = self.desk.operations.project()
        declared = {one.table for one in view.drift}
        unknown = [name for name in undeployed if name not in declared]
        if unknown and not view.missing:
            known = declared | set(self.desk.world.statements)
            raise UsageError(
                f"there is no table {unknown[0]}",
                remedy=did_you_mean(unknown[0], known) or "press p for what is declared and not deployed",
            )

    def do_unstage(self, key: str) -> None:
        targets = staged_by_user(self.desk.world, self.desk.place.user, self.subjects())
        agent = self.desk.operations.agent
        self.desk.host.perform(lambda: unstage_answer(agent.unstage(targets)), self._said)

    def do_detail(self, key: str) -> None:
        self.desk.host.go("detail", table=self.looked_at()[0])

    def do_sql(self, key: str) -> None:
        self.desk.host.go("detail", table=self.looked_at()[0], tab="sql")

    def do_events(self, key: str) -> None:
        looked = self.looked_at()
        if len(looked) == 1:
            self.desk.host.go("detail", table=looked[0], tab="events")
        else:
            self.desk.host.go("events", tables=looked)

    def do_lineage(self, key: str) -> None:
        self.desk.host.go("detail", table=self.looked_at()[0], tab="lineage")
