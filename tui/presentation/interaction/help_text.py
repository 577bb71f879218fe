"""Help: the keys of a screen from the one table of actions, with the reason for each that is not possible now."""

from tui.presentation.interaction.action_availability import ActionContext, action_label, why_not_possible
from tui.presentation.interaction.colon_completion import names
from tui.presentation.interaction.keymap import ConfirmationLevel, actions_on_screen, key_names
from tui.presentation.styling.styled_text import EMPTY, Line, Tone, left, line, wrap

ASKS = {ConfirmationLevel.C0: "no question", ConfirmationLevel.C1: "asks first", ConfirmationLevel.C3: "asks first"}
"""How an act is confirmed; what is typed stands in its question."""
GROUPS = (("ACTIONS: upper case, or typed", True), ("VIEWS: they never change anything", False))


def help_lines(screen: str, now: ActionContext, width: int) -> tuple[Line, ...]:
    """Write the help of a screen."""
    lines: list[Line] = [line((f" KEYS on {screen}", Tone.TITLE)), EMPTY]
    for title, acts in GROUPS:
        rows = [action for action in actions_on_screen(screen) if (action.level is not ConfirmationLevel.LOOK) == acts]
        if not rows:
            continue
        lines.append(line((f" {title}", Tone.DIM)))
        for action in rows:
            reason = why_not_possible(action, now)
            level = f" ({ASKS[action.level]})" if acts else ""
            lines.append(
                line(
                    (f"   {left(key_names(action), 14)}", Tone.GHOST if reason else Tone.KEY),
                    (left(action_label(action, now), 12), Tone.GHOST if reason else Tone.PLAIN),
                    (action.summary + level, Tone.DIM),
                )
            )
            if reason:
                lines.extend(wrap(f"not now: {reason}", width - 2, Tone.CHANGING, " " * 29))
            if acts:
                words = action.command or f":{action.typed} {{tables}}"
                words = words.replace("{tables}", "TABLE…").replace("{hash}", "PLAN").replace("{run}", "RUN")
                lines.append(line((" " * 29 + f"same as: {words}", Tone.GHOST)))
        lines.append(EMPTY)
    lines.append(line((" COMMANDS: type : first; tab completes", Tone.DIM)))
    lines.extend(line((f"   :{left(name, 13)}", Tone.KEY), (summary, Tone.DIM)) for name, summary in names(screen))
    lines.append(EMPTY)
    lines.append(line((" CONFIRMING", Tone.DIM)))
    lines.extend(
        wrap(
            "A dialog asks for a typed text and Enter, and shows which: yes for one statement; for a plan that "
            "rebuilds, deletes or takes back, and for a swap, the environment and four characters, as in dev 7f3a; "
            "to cancel or skip, four characters of the run. :help console has the whole rule. Enter alone and esc are "
            "always safe. It accepts keys after 0.4 s, and never pasted text.",
            width - 3,
            Tone.PLAIN,
            "   ",
        )
    )
    return tuple(lines)


def topic_lines(text: str, width: int) -> tuple[Line, ...]:
    """Write a help page of `tui/help`: headings, paragraphs and indented examples."""
    lines: list[Line] = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.strip("\n").splitlines()
        if not rows:
            continue
        if rows[0].startswith("#"):
            lines.append(line((f" {rows[0].lstrip('# ')}", Tone.TITLE)))
            rows = rows[1:]
        if rows and rows[0].startswith(("    ", "|", "- ", "```")):
            lines.extend(
                line((f"   {row.removeprefix('    ')}", Tone.PLAIN))
                for row in rows
                if not row.startswith(("```", "|--"))
            )
        elif rows:
            lines.extend(wrap(" ".join(rows), width - 2, Tone.PLAIN, " "))
        lines.append(EMPTY)
    return tuple(lines)
