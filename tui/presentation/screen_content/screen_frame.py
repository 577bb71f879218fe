"""The frame of every screen: banner, breadcrumb, status line and footer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.model.act_outcomes import NOT_DONE, ActOutcome, CommandOutcome
from core.model.names import environment_words
from core.model.states import PoolState, State
from core.plan.descriptions import act_words
from core.run.records import RunRow, overdue_tickets
from core.text.wording import counted, long_duration
from state.audit_log import op_words
from state.ledger_snapshot import LedgerSnapshot
from state.row_types import CommandRow
from tui.presentation.interaction.action_availability import ActionContext, action_label, why_not_possible
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog
from tui.presentation.interaction.keymap import KEY_NAMES, ActionRequirement, actions_on_screen
from tui.presentation.styling.styled_text import (
    EMPTY,
    Line,
    Span,
    Tone,
    ends,
    fit,
    line,
    line_width,
    plain,
    shorten,
    width_of,
    wrap,
)
from tui.presentation.styling.value_formatting import clock
from tui.presentation.view.ledger_view import OPEN_TO_ALL, Access, Freshness, LedgerView, pool_fault
from tui.presentation.view.pools import pools_in_words

SEPARATOR = "   "
PROJECT_BESIDE_BADGES = 12
"""Maximum width of the project's name in the first line if several environments are open."""
WIDE = 160
"""Minimum width at which the home screen shows panes next to its tree."""


@dataclass(frozen=True, slots=True)
class ConsoleIdentity:
    """The user, project and environment of a console, which are known before the ledger is read."""

    project: str
    environment: str
    protected: bool
    user: str
    colour: str = ""
    """Declared colour of the environment's name; empty for the default."""
    base: str = ""
    """The environment that this one overlays; empty for none."""

    @property
    def words(self) -> str:
        """The environment's name as displayed: `PROD protected`, `dev`, `pr-1 over dev`."""
        return environment_words(self.environment, protected=self.protected, base=self.base)

    @property
    def tone(self) -> Tone:
        """The tone of the environment's name."""
        return environment_tone(protected=self.protected, colour=self.colour)

    @property
    def on_ground(self) -> bool:
        """True if the name is drawn on a coloured ground, which then extends one cell beyond it on both sides."""
        return self.tone is not Tone.OPEN

    @property
    def title(self) -> str:
        """Project and environment, as displayed in titles."""
        return f"{self.project} {self.words}"


@dataclass(frozen=True, slots=True)
class EnvironmentBadge:
    """An open environment in the first line of a console that has several open."""

    words: str
    """The environment's name as displayed."""
    tone: Tone = Tone.DIM
    shown: bool = False
    """True for the environment on the screen."""
    faults: int | None = None
    """Number of faults; a broken pool counts as one. None if no agent observes the environment now."""


class LaterCommands(NamedTuple):
    """Command lines for reopening the console and for stopping everything, as the user's shell accepts them."""

    console: str = "headgate"
    down: str = "headgate down"


def banner_line(
    identity: ConsoleIdentity,
    view: LedgerView,
    fresh: Freshness,
    width: int,
    *,
    access: Access = OPEN_TO_ALL,
    problems_in_files: int = 0,
    badges: Sequence[EnvironmentBadge] = (),
) -> Line:
    """Render line 1 of the screen: project, environment, access, age of the data, pool, faults, runs, stage, user.

    The number of errors in the project's files follows the runs. Parts that do not fit are omitted, least important
    first; environment and age of the data are always shown. `access` is shown unless the environment is open to all.
    If several environments are open, `badges` has all of them, and the one on the screen is in brackets.
    """
    environment = f" {identity.words} "
    user = line((f"  {shorten(identity.user, 16)} ", Tone.DIM))
    project = shorten(identity.project, max(width - width_of(environment) - width_of(fresh.words) - 12, 4))
    if badges:
        project = shorten(project, PROJECT_BESIDE_BADGES)
        always = "".join(SEPARATOR + words for words in (access.words, fresh.words) if words)
        shown = _badge_spans(badges, width - width_of(project) - width_of(always) - 2)
    else:
        shown = (Span(environment, identity.tone),)
    start: list[Span] = [Span(f" {project}", Tone.TITLE), Span(" "), *shown]
    room = width - line_width(tuple(start))
    kept: list[tuple[int, str, Tone]] = []
    opened = [(0, -1, access.words, Tone.DIM if access.locked else Tone.CHANGING)] if access.words else []
    parts = _parts(view, fresh, problems_in_files, counts_faults=not badges)
    for part in sorted([*opened, *parts]):
        taken = width_of(SEPARATOR + part[2])
        if taken > room:
            break
        kept.append(part[1:])
        room -= taken
    for _, text, tone in sorted(kept):
        start += [Span(SEPARATOR), Span(text, tone)]
    return ends(tuple(start), user, width) if room >= line_width(user) else fit(tuple(start), width)


def _badge_spans(badges: Sequence[EnvironmentBadge], room: int) -> tuple[Span, ...]:
    """Render badges in their order. If not all fit, those without faults are omitted first, and counted."""
    drawn, kept, left = tuple(map(_badge, badges)), set[int](), room
    for n in sorted(range(len(badges)), key=lambda n: _badge_rank(badges[n])):
        more = len(badges) - len(kept) - 1
        if badges[n].shown or line_width(drawn[n]) + (len(f" +{more}") if more else 0) <= left:
            kept.add(n)
            left -= line_width(drawn[n])
    spans = [span for n in sorted(kept) for span in drawn[n]]
    if omitted := [badge for n, badge in enumerate(badges) if n not in kept]:
        spans.append(Span(f" +{len(omitted)}", Tone.BAD if any(one.faults for one in omitted) else Tone.DIM))
    return tuple(spans)


def _badge_rank(badge: EnvironmentBadge) -> int:
    return 0 if badge.shown else 1 if badge.faults else 2 if badge.faults is None else 3


def _badge(badge: EnvironmentBadge) -> Line:
    begin, end = ("[", "]") if badge.shown else (" ", "")
    count = line((f"! {badge.faults} ", Tone.BAD) if badge.faults else "")
    # Of the environment on the screen, the age of its data is shown in full.
    unknown = line(("? ", Tone.CHANGING) if badge.faults is None and not badge.shown else "")
    return line((begin, Tone.KEY), (f" {badge.words} ", badge.tone), *count, *unknown, (end, Tone.KEY))


def _parts(
    view: LedgerView, fresh: Freshness, problems_in_files: int, *, counts_faults: bool
) -> list[tuple[int, int, str, Tone]]:
    """Return the parts of line 1 as (importance, position, text, tone); 0 is the most important, or the leftmost."""
    snapshot = view.snapshot
    parts = [(0, 1, fresh.words, Tone.BAD if fresh.stale else Tone.GOOD)]
    if snapshot.facts is not None:
        calm = snapshot.facts.pool_state == PoolState.UP
        words = pools_in_words(snapshot.facts, state_when_up=False)
        words = f"! {words}" if pool_fault(snapshot) else words
        tone = Tone.CHANGING if snapshot.facts.pool_state == PoolState.STARTING else Tone.BAD
        parts.append((5 if calm else 1, 0, words, Tone.DIM if calm else tone))
    if view.faults and counts_faults:
        parts.append((2, 2, f"! {counted(view.faults, 'fault')}", Tone.BAD))
    if snapshot.failed_runs:
        more = f" and {len(snapshot.failed_runs) - 1} more" if len(snapshot.failed_runs) > 1 else ""
        parts.append((1, 3, f"run {snapshot.failed_runs[0].id[:10]} failed{more}", Tone.BAD))
    if late := overdue_tickets(snapshot.tickets, snapshot.read_at):
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        parts.append((1, 3, f"ticket of {shorten(late[0].reader, 24)} overdue{more}", Tone.BAD))
    if snapshot.releases:
        parts.append(_releases_part(snapshot))
    elif snapshot.open_runs:
        parts.append((3, 3, f"run {snapshot.open_runs[0].id[:10]}", Tone.CHANGING))
    if problems_in_files:
        parts.append((4, 4, f"{counted(problems_in_files, 'problem')} in files", Tone.BAD))
    if snapshot.staged:
        parts.append((4, 5, f"{len(snapshot.staged)} staged", Tone.MARK))
    return parts


def _releases_part(snapshot: LedgerSnapshot) -> tuple[int, int, str, Tone]:
    held = [one for one in snapshot.releases if one.state == "held"]
    first = (*held, *snapshot.releases)[0]
    until = f" until {clock(first.old_until)}" if first.state == "observing" and first.old_until else ""
    more = f" and {len(snapshot.releases) - 1} more" if len(snapshot.releases) > 1 else ""
    return 1 if held else 3, 3, f"run {first.run[:10]} {first.state}{until}{more}", Tone.CHANGING


def environment_tone(*, protected: bool, colour: str) -> Tone:
    """Return the tone of an environment's name: its declared colour or, without one, that of its protection."""
    return Tone(colour) if colour else Tone.PROTECTED if protected else Tone.OPEN


def breadcrumb_line(parts: Sequence[str], filter_text: str, counts: str, width: int) -> Line:
    """Render line 2: the path to this screen, the filter, and the screen's counts."""
    start = line((" " + " > ".join(parts), Tone.PLAIN))
    end: list[Span] = []
    if filter_text:
        end.append(Span(f"/{shorten(filter_text, 24)}", Tone.CHANGING))
        end.append(Span("   "))
    end.append(Span(f"{counts} ", Tone.DIM))
    return ends(start, tuple(end), width)


def nothing_lines(
    view: LedgerView, identity: ConsoleIdentity, filter_text: str, width: int, *, faults_only: bool = False
) -> tuple[Line, ...]:
    """Explain why no statement is shown, and what to do next; `faults_only` if only faulty ones may be shown."""
    snapshot = view.snapshot
    if view.statements:
        words = "no statement is at fault" if (fault := pool_fault(snapshot)) else "no faults"
        if filter_text:
            words = f"no statement matches /{filter_text}"
            if faults_only:
                words = f"no statement at fault matches /{filter_text}: f shows all that match"
                words += f"; {counted(view.faults, 'fault')} outside of the filter" if view.faults else ""
        else:
            words = f"{words}: f shows all again"
        words = f"{words}. But {fault}" if fault and not filter_text else words
        return (EMPTY, *wrap(words, width - 2, Tone.DIM, "  "))
    if snapshot.problem:
        return (
            EMPTY,
            *wrap(snapshot.problem, width - 2, Tone.BAD, "  "),
            *wrap(snapshot.remedy, width - 2, Tone.PLAIN, "  "),
        )
    if snapshot.facts is None:
        return (EMPTY, *wrap("reading the ledger", width - 2, Tone.DIM, "  "))
    words = f"nothing is deployed in {identity.environment} yet"
    todo = "p lists what the files declare; there, D stages, enter plans and reviews, E executes"
    if snapshot.open_runs:
        todo = f"run {snapshot.open_runs[0].id[:10]} is open; :run shows its steps"
    return (EMPTY, *wrap(words, width - 2, Tone.PLAIN, "  "), *wrap(todo, width - 2, Tone.DIM, "  "))


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A key in the footer. It is grey and in brackets while its action is impossible."""

    key: str
    label: str
    possible: bool = True


def footer(screen: str, now: ActionContext) -> tuple[KeyHint, ...]:
    """Return the keys in a screen's footer, ordered by rank.

    Keys between environments are left out while only one is open, which is the usual case.
    """
    listed = (one for one in actions_on_screen(screen) if one.rank < 99)
    known = (one for one in listed if now.several or ActionRequirement.SEVERAL not in one.needs)
    ranked = sorted(known, key=lambda action: action.rank)
    return tuple(
        KeyHint(KEY_NAMES.get(one.keys[0], one.keys[0]), action_label(one, now), not why_not_possible(one, now))
        for one in ranked
    )


def dialog_keys(question: ConfirmationDialog) -> tuple[KeyHint, ...]:
    """Return the keys that the footer shows while a confirmation dialog is open."""
    safe: tuple[KeyHint, ...] = (KeyHint("enter", question.safe), KeyHint("esc", question.escape))
    if not question.escape:
        safe = (KeyHint("enter, esc", question.safe),)
    return (*safe, KeyHint("ctrl+u", "clear"), KeyHint(f"{question.expected} enter", question.verb))


def choices(words: Sequence[str], width: int, ellipsis: str) -> Line:
    """Render as many completions of a typed line as fit, followed by an ellipsis if there are more."""
    text = ""
    for word in words:
        if width_of(f"{text} {word}   {ellipsis}") > width:
            return line((f" {text}{ellipsis}", Tone.DIM))
        text += f"{word}   "
    return line((f" {text}".rstrip(), Tone.DIM))


def hints(items: Sequence[KeyHint], width: int, *, help_key: bool = True) -> Line:
    """Render the footer: as many keys as fit, and `? keys` unless `help_key` is False.

    On a narrow terminal, available keys come first. On a wide terminal, every key keeps its position, so that moving
    the cursor redraws little.
    """
    last = line((" ? ", Tone.KEY), ("keys ", Tone.DIM)) if help_key else ()
    spans: list[Span] = []
    room = width - line_width(last)
    for item in items if width >= WIDE else sorted(items, key=lambda item: not item.possible):
        room -= width_of(f" {item.key} {item.label} ")
        if room < 0:
            break
        if item.possible:
            spans += [Span(f" {item.key} ", Tone.KEY), Span(f"{item.label} ", Tone.DIM)]
        else:
            spans.append(Span(f"({item.key} {item.label})", Tone.GHOST))
    return fit((*spans, *last), width)


def too_small(width: int, height: int, need_width: int, need_height: int) -> Line:
    """Return the message for a terminal that is too small."""
    return line(f"needs {need_width}x{need_height}, this is {width}x{height}")


MESSAGE_LINES, STANDING_LINES = 5, 2
"""Maximum height of the status line in lines: while it shows a message, and while it is idle."""
COMMAND_S = 60.0
"""Seconds for which the last command is shown. Afterwards, it is only in the log."""

_BEGINNING = {
    "start": (", first batch pending", State.STARTING),
    "restart": (", first batch pending", State.STARTING),
    "stop": (", not confirmed by Spark yet", State.STOPPING),
}
"""Maps a verb to what is still pending after an accepted action on statements, and to their state until then."""


def message_lines(
    text: str,
    at: float | None,
    tone: Tone,
    width: int,
    *,
    most: int = MESSAGE_LINES,
    about: ConsoleIdentity | None = None,
) -> tuple[Line, ...]:
    """Render a message, with its time unless that is None, on at most `most` lines.

    A longer message ends with an ellipsis. Unless `about` is None, the message begins with that environment.
    """
    stamp = f" {clock(at)} " if at is not None else " "
    start = line((stamp, Tone.DIM), *(environment_spans(about) if about and text else ()))
    indent = line_width(start)
    rows = [plain(row) for row in wrap(text, width - indent - 1)]
    if len(rows) > most:
        rows[most - 1 :] = [shorten(f"{rows[most - 1]} {rows[most]}", width - indent - 1)]
    starts = (start, *(line(" " * indent) for _ in rows[1:]))
    return tuple(fit((*first, Span(row, tone)), width) for first, row in zip(starts, rows, strict=True))


def environment_spans(identity: ConsoleIdentity) -> Line:
    """Return an environment's name in its colour, followed by a space, as it begins a message or a typed line."""
    return line((f" {identity.words} " if identity.on_ground else identity.words, identity.tone), " ")


def environments_answer(name: str, declared: Mapping[str, bool], opened: Sequence[str]) -> str:
    """List a project's environments, given with whether each was ever started; `name` is one that was not found."""

    def words(each: str) -> str:
        notes = ("open" if each in opened else "", "" if declared[each] else "never started")
        return f"{each} ({', '.join(filter(None, notes))})" if any(notes) else each

    found = ", ".join(map(words, declared)) or "none"
    return f"env: there is no environment {name}; there are: {found}" if name else f"env: {found}"


def standing_message(view: LedgerView, fresh: Freshness, now: float) -> tuple[str, float | None, Tone]:
    """Return the idle status line as (text, time, tone): the current problem or, without one, a recent outcome."""
    snapshot = view.snapshot
    if snapshot.problem:
        return f"{snapshot.problem}. {snapshot.remedy}".strip(), None, Tone.BAD
    if snapshot.facts is not None and not fresh.agent:
        return fresh.reason, None, Tone.CHANGING
    if fault := pool_fault(snapshot):
        return fault, None, Tone.BAD
    if not snapshot.commands or now - snapshot.commands[0].at > COMMAND_S:
        return "", None, Tone.DIM
    command = snapshot.commands[0]
    tone = Tone.BAD if command.outcome in NOT_DONE else Tone.PLAIN
    took = (
        f" in {command.took_ms / 1000:.1f} s"
        if command.outcome == CommandOutcome.DONE and command.took_ms is not None
        else ""
    )
    detail = f": {command.detail}" if command.detail and tone is Tone.BAD else ""
    words = f"{op_words(command.op)} {command.subject}".strip()
    # A submitted plan still has to be applied, so this is not "done".
    done = "submitted" if (command.op, command.outcome) == ("submit_plan", CommandOutcome.DONE) else command.outcome
    outcome = done + (_pending(command, view) if command.outcome == CommandOutcome.ACCEPTED else "")
    return f"{words}: {outcome}{took}, by {command.actor}{detail}", command.at, tone


def accepted_words(run_id: str) -> str:
    """Return the message for an accepted plan. The plan's run reports the outcome."""
    return f"accepted, run {run_id} started"


def failure_words(run: RunRow) -> str:
    """Return the message for a failed run: the failed step, the reason, and the commands to show and acknowledge it."""
    step = next((step for step in run.steps if step.state == "failed"), None)
    why = f": {act_words(step.do)} {step.table}: {step.note}" if step else ""
    return f"run {run.id[:10]} failed{why}; :run {run.id[:10]} shows it, :ack acknowledges it"


def _pending(command: CommandRow, view: LedgerView) -> str:
    """Return what an accepted command waits for, or its detail; empty once its tables have started or stopped."""
    if command.op not in _BEGINNING:
        return f", {command.detail}" if command.detail else ""
    words, state = _BEGINNING[command.op]
    found = [view.statement(table) for table in command.subject.split()]
    return "" if found and all(one is not None and one.state is not state for one in found) else words


def act_answer(verb: str, outcomes: Iterable[ActOutcome]) -> str:
    """Describe the outcome of a stop, start or restart for each statement."""
    words = [f"{outcome.table} {outcome.sentence(f'{outcome.took_ms / 1000:.1f} s')}" for outcome in outcomes]
    return f"{verb}: {', '.join(words) or 'sent'}"


def unlock_answer(title: str, actor: str, seconds: float, until: float, ticket: str) -> str:
    """Return for whom, until when and why an environment is unlocked; `title` is its project and name."""
    return f"{title} is unlocked for {actor} for {long_duration(seconds)}, until {clock(until)}: {ticket}"


NOT_PROTECTED = "is not protected: nothing to unlock"
"""Answer to an unlock of an open environment, after its project and name."""


def lock_answer(title: str, *, ended: bool, protected: bool) -> str:
    """Return whether an unlock was ended; `title` is the project and name of the environment."""
    if not protected:
        return f"{title} is not protected, so it is open to everybody: nothing to lock"
    return f"{title} is locked for you again" if ended else f"{title} was not unlocked for you: nothing changed"


def stage_answer(verb: str, tables: Sequence[str], screen: str, *, unchanged: Sequence[str] = ()) -> str:
    """Describe what was staged and which tables are unchanged, and suggest the next key on this screen."""
    same = f" ({', '.join(unchanged)}: unchanged, nothing to do)" if unchanged else ""
    key = "enter plans what is staged" if screen == "changes" else "p shows the stage, enter there plans it"
    return f"{verb} staged: {', '.join(tables)}{same}; {key}"


def unstage_answer(taken: Sequence[str]) -> str:
    """List the tables that were unstaged."""
    words = f"{counted(len(taken), 'table')} off the stage: "
    return words + (", ".join(taken) or "nothing changed: it was staged from another project folder")


def approve_answer(plan_hash: str, approved: int, needed: int) -> str:
    """Return how many of the required approvals a plan has."""
    return f"plan {plan_hash[:4]}: approvals {approved} of {needed}"
