"""One line of typing for `/` and `:`, as a value; pasted text goes in as text and never as Enter."""

from dataclasses import dataclass, replace

from tui.presentation.styling.glyphs import Glyphs
from tui.presentation.styling.styled_text import Line, Tone, line, width_of


@dataclass(frozen=True, slots=True)
class InputLine:
    """What is being typed; `done` is accept or leave once Enter or esc came."""

    sign: str
    text: str = ""
    place: int = 0
    done: str = ""
    history: tuple[str, ...] = ()
    """Oldest first."""
    back: int = 0
    """How far back in history the text comes from; 0 is what was typed."""


def type_key(entry: InputLine, key: str, character: str | None) -> InputLine:
    """Take one key."""
    text, place = entry.text, entry.place
    match key:
        case "escape" | "ctrl+c":
            return replace(entry, done="leave")
        case "enter":
            return replace(entry, done="accept")
        case "backspace" | "ctrl+h":
            if not text:
                return replace(entry, done="leave")
            return replace(entry, text=text[: max(place - 1, 0)] + text[place:], place=max(place - 1, 0))
        case "delete":
            return replace(entry, text=text[:place] + text[place + 1 :])
        case "left":
            return replace(entry, place=max(place - 1, 0))
        case "right":
            return replace(entry, place=min(place + 1, len(text)))
        case "home" | "ctrl+a":
            return replace(entry, place=0)
        case "end" | "ctrl+e":
            return replace(entry, place=len(text))
        case "ctrl+u":
            return replace(entry, text=text[place:], place=0)
        case "ctrl+w":
            kept = text[:place].rstrip().rpartition(" ")[0]
            kept = f"{kept} " if kept else ""
            return replace(entry, text=kept + text[place:], place=len(kept))
        case "up" | "down":
            return _recall(entry, 1 if key == "up" else -1)
    if character is not None and len(character) == 1 and character.isprintable():
        return insert(entry, character)
    return entry


def insert(entry: InputLine, text: str) -> InputLine:
    """Put text in at the cursor: what is printable of its first line."""
    first = next(iter(text.splitlines()), "")
    printable = "".join(character for character in first if character.isprintable())
    joined = entry.text[: entry.place] + printable + entry.text[entry.place :]
    return replace(entry, text=joined[:400], place=min(entry.place + len(printable), 400))


def _recall(entry: InputLine, step: int) -> InputLine:
    back = min(max(entry.back + step, 0), len(entry.history))
    text = entry.history[-back] if back else ""
    return replace(entry, text=text, place=len(text), back=back)


def complete(entry: InputLine, choices: tuple[str, ...]) -> InputLine:
    """Take the longest common beginning of the choices, or the next choice when there is nothing to add."""
    if not choices:
        return entry
    common = choices[0]
    for choice in choices[1:]:
        while not choice.startswith(common):
            common = common[:-1]
    text = common if len(common) > len(entry.text) else choices[0]
    return replace(entry, text=text, place=len(text))


def input_line_cells(entry: InputLine, glyphs: Glyphs, width: int) -> Line:
    """Draw what is being typed with its cursor, which is always seen: a long text begins further right."""
    before, after = entry.text[: entry.place], entry.text[entry.place :]
    room = max(width - 4, 1)
    while width_of(before) > room:
        before = before[1:]
    return line((f" {entry.sign}", Tone.KEY), before, (glyphs.cursor, Tone.KEY), after)
