"""Banner, breadcrumb and footer of every screen: where am I and how fresh is it, what is filtered, which keys work."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.run.migration_tickets import overdue_tickets
from core.text.wording import counted
from state.ledger_snapshot import LedgerSnapshot
from tui.presentation.interaction.action_availability import ActionContext, action_label, why_not_possible
from tui.presentation.interaction.confirmation_dialogs import ConfirmationDialog
from tui.presentation.interaction.keymap import KEY_NAMES, actions_on_screen
from tui.presentation.styling.styled_text import (
    EMPTY,
    Line,
    Span,
    Tone,
    ends,
    fit,
    line,
    line_width,
    shorten,
    width_of,
    wrap,
)
from tui.presentation.styling.value_formatting import clock
from tui.presentation.view.ledger_view import Freshness, LedgerView

SEPARATOR = "   "


@dataclass(frozen=True, slots=True)
class ConsoleIdentity:
    """Who looks at what; known before the ledger is read."""

    project: str
    environment: str
    protected: bool
    user: str

    @property
    def words(self) -> str:
        """Name the environment: `PROD protected`, `dev`."""
        return f"{self.environment.upper()} protected" if self.protected else self.environment

    @property
    def title(self) -> str:
        """Name project and environment."""
        return f"{self.project} {self.words}"


def banner_line(identity: ConsoleIdentity, view: LedgerView, fresh: Freshness, width: int) -> Line:
    """Write line 1: project, environment in colour and word, pool, age of the data, faults, staged, runs, user.

    What has no room is left out whole, the least important first; environment and age of the data are never.
    """
    environment = f" {identity.words} "
    user = line((f"  {shorten(identity.user, 16)} ", Tone.DIM))
    project = shorten(identity.project, max(width - width_of(environment) - width_of(fresh.words) - 12, 4))
    start: list[Span] = [Span(f" {project}", Tone.TITLE), Span(" "), Span(environment, environment_tone(identity))]
    room = width - line_width(tuple(start))
    kept: list[tuple[int, str, Tone]] = []
    for part in sorted(_parts(view, fresh)):
        taken = width_of(SEPARATOR + part[2])
        if taken > room:
            break
        kept.append(part[1:])
        room -= taken
    for _, text, tone in sorted(kept):
        start += [Span(SEPARATOR), Span(text, tone)]
    return ends(tuple(start), user, width) if room >= line_width(user) else fit(tuple(start), width)


def _parts(view: LedgerView, fresh: Freshness) -> list[tuple[int, int, str, Tone]]:
    """List what line 1 says by importance and place, each number smallest first."""
    snapshot = view.snapshot
    parts = [(0, 1, fresh.words, Tone.BAD if fresh.stale else Tone.GOOD)]
    if snapshot.facts is not None:
        calm = snapshot.facts.pool_state in ("up", "")
        words = f"pool {snapshot.facts.pool}" + ("" if calm else f" {snapshot.facts.pool_state}")
        parts.append((5 if calm else 1, 0, words, Tone.DIM if calm else Tone.BAD))
    if view.faults:
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
    if snapshot.staged:
        parts.append((4, 4, f"{len(snapshot.staged)} staged", Tone.MARK))
    return parts


def _releases_part(snapshot: LedgerSnapshot) -> tuple[int, int, str, Tone]:
    """Name the release that waits for a word, else the newest; and until when a rollback of it takes seconds."""
    held = [one for one in snapshot.releases if one.state == "held"]
    first = (*held, *snapshot.releases)[0]
    until = f" until {clock(first.old_until)}" if first.state == "observing" and first.old_until else ""
    more = f" and {len(snapshot.releases) - 1} more" if len(snapshot.releases) > 1 else ""
    return 1 if held else 3, 3, f"run {first.run[:10]} {first.state}{until}{more}", Tone.CHANGING


def environment_tone(identity: ConsoleIdentity) -> Tone:
    """Return the tone of the environment's name."""
    return Tone.PROTECTED if identity.protected else Tone.OPEN


def breadcrumb_line(parts: Sequence[str], filter_text: str, counts: str, width: int) -> Line:
    """Write line 2: where in the tree, the filter, how many are shown."""
    start = line((" " + " > ".join(parts), Tone.PLAIN))
    end: list[Span] = []
    if filter_text:
        end.append(Span(f"/{shorten(filter_text, 24)}", Tone.CHANGING))
        end.append(Span("   "))
    end.append(Span(f"{counts} ", Tone.DIM))
    return ends(start, tuple(end), width)


def nothing_lines(view: LedgerView, identity: ConsoleIdentity, filter_text: str, width: int) -> tuple[Line, ...]:
    """Explain why no statement is shown, and what to do."""
    snapshot = view.snapshot
    if view.statements:
        words = f"no statement matches /{filter_text}" if filter_text else "no faults: f shows all again"
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
    return (EMPTY, *wrap(words, width - 2, Tone.PLAIN, "  "), *wrap(todo, width - 2, Tone.DIM, "  "))


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A key in the footer; one that is not possible now is greyed, and in brackets for who sees no grey."""

    key: str
    label: str
    possible: bool = True


def footer(screen: str, now: ActionContext) -> tuple[KeyHint, ...]:
    """Return the footer's keys by rank: those that are possible now, on this row, before those that are not."""
    ranked = sorted((one for one in actions_on_screen(screen) if one.rank < 99), key=lambda action: action.rank)
    shown = [
        KeyHint(KEY_NAMES.get(one.keys[0], one.keys[0]), action_label(one, now), not why_not_possible(one, now))
        for one in ranked
    ]
    return tuple(sorted(shown, key=lambda hint: not hint.possible))


def dialog_keys(question: ConfirmationDialog) -> tuple[KeyHint, ...]:
    """Return the footer's keys while a question is open: no key of the screen below works then."""
    safe: tuple[KeyHint, ...] = (KeyHint("enter", question.safe), KeyHint("esc", question.escape))
    if not question.escape:
        safe = (KeyHint("enter, esc", question.safe),)
    return (*safe, KeyHint("ctrl+u", "clear"), KeyHint(f"{question.expected} enter", question.verb))


def choices(words: Sequence[str], width: int, ellipsis: str) -> Line:
    """Write how a line that is typed may go on: as many words as fit, and a sign that there are more."""
    text = ""
    for word in words:
        if width_of(f"{text} {word}   {ellipsis}") > width:
            return line((f" {text}{ellipsis}", Tone.DIM))
        text += f"{word}   "
    return line((f" {text}".rstrip(), Tone.DIM))


def hints(items: Sequence[KeyHint], width: int, *, help_key: bool = True) -> Line:
    """Write the last line: as many keys as fit, in order of importance, and always `? keys` where it works."""
    last = line((" ? ", Tone.KEY), ("keys ", Tone.DIM)) if help_key else ()
    spans: list[Span] = []
    room = width - line_width(last)
    for item in items:
        piece = f" {item.key} {item.label} "
        if width_of(piece) > room:
            break
        room -= width_of(piece)
        if item.possible:
            spans += [Span(f" {item.key} ", Tone.KEY), Span(f"{item.label} ", Tone.DIM)]
        else:
            spans.append(Span(f"({item.key} {item.label})", Tone.GHOST))
    return fit((*spans, *last), width)


def too_small(width: int, height: int, need_width: int, need_height: int) -> Line:
    """Return in one line what a small terminal needs."""
    return line(f"needs {need_width}x{need_height}, this is {width}x{height}")
