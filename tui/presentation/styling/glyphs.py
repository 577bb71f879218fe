"""Glyphs: one set for UTF-8 terminals, one in ASCII; each stands beside a word, never alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.model.states import State, Trend
from tui.presentation.styling.styled_text import Tone


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of glyphs, each a single cell wide."""

    states: Mapping[State, str]
    trends: Mapping[Trend, str]
    opened: str
    closed: str
    mark: str
    again: str
    dot: str
    arrow: str
    ellipsis: str
    times: str
    rule: str
    box: str
    """Corners and sides of the dialog: top left, top right, bottom left, bottom right, horizontal, vertical."""
    cursor: str
    full: str
    rest: str
    levels: str
    """Heights of a spark, lowest first."""
    done: str
    steps: Mapping[str, str] = field(default_factory=dict)
    """Per state of a step."""


UNICODE = Glyphs(
    states={
        State.ABSENT: "·",
        State.PENDING: "·",
        State.STARTING: "◐",
        State.RUNNING: "●",
        State.DEGRADED: "◍",
        State.FAILED: "✖",
        State.STOPPING: "◑",
        State.STOPPED: "■",
        State.COMPLETED: "✔",
        State.UNKNOWN: "?",
    },
    trends={
        Trend.DRAINING: "▼",
        Trend.STEADY: "=",
        Trend.GROWING: "▲",
        Trend.STALLED: "‖",
        Trend.STARVED: "∅",
        Trend.IDLE: "·",
        Trend.UNKNOWN: " ",
    },
    opened="▾",
    closed="▸",
    mark="◆",
    again="↑",
    dot="·",
    arrow="→",
    ellipsis="…",
    times="\u00d7",
    rule="─",
    box="┌┐└┘─│",
    cursor="▌",
    full="█",
    rest="░",
    levels="▁▂▃▄▅▆▇█",
    done="✔",
    steps={
        "waits": "·",
        "running": "◐",
        "gate": "◐",
        "done": "✔",
        "failed": "✖",
        "blocked": "⊘",
        "skipped": "-",
        "cancelled": "-",
        "kept": "-",
    },
)

ASCII = Glyphs(
    states={
        State.ABSENT: ".",
        State.PENDING: ".",
        State.STARTING: "~",
        State.RUNNING: "*",
        State.DEGRADED: "%",
        State.FAILED: "X",
        State.STOPPING: "~",
        State.STOPPED: "#",
        State.COMPLETED: "+",
        State.UNKNOWN: "?",
    },
    trends={
        Trend.DRAINING: "v",
        Trend.STEADY: "=",
        Trend.GROWING: "^",
        Trend.STALLED: "!",
        Trend.STARVED: "0",
        Trend.IDLE: ".",
        Trend.UNKNOWN: " ",
    },
    opened="v",
    closed=">",
    mark="+",
    again="^",
    dot="|",
    arrow="->",
    ellipsis="...",
    times="x",
    rule="-",
    box="++++-|",
    cursor="_",
    full="#",
    rest=".",
    levels="_.-=+*#@",
    done="+",
    steps={
        "waits": ".",
        "running": "~",
        "gate": "~",
        "done": "+",
        "failed": "X",
        "blocked": "!",
        "skipped": "-",
        "cancelled": "-",
        "kept": "-",
    },
)

STATE_TONES = {
    State.FAILED: Tone.BAD,
    State.DEGRADED: Tone.BAD,
    State.UNKNOWN: Tone.CHANGING,
    State.STARTING: Tone.CHANGING,
    State.STOPPING: Tone.CHANGING,
    State.PENDING: Tone.CHANGING,
    State.RUNNING: Tone.GOOD,
    State.STOPPED: Tone.DIM,
    State.ABSENT: Tone.DIM,
    State.COMPLETED: Tone.DIM,
}

TREND_TONES = {
    Trend.GROWING: Tone.CHANGING,
    Trend.STALLED: Tone.BAD,
    Trend.STARVED: Tone.BAD,
    Trend.DRAINING: Tone.CHANGING,
    Trend.STEADY: Tone.PLAIN,
    Trend.IDLE: Tone.DIM,
    Trend.UNKNOWN: Tone.DIM,
}


def choose_glyphs(environ: Mapping[str, str]) -> Glyphs:
    """Choose ASCII unless the locale is UTF-8; HEADGATE_GLYPHS=ascii or unicode decides otherwise."""
    wished = environ.get("HEADGATE_GLYPHS", "").lower()
    if wished in ("ascii", "unicode"):
        return ASCII if wished == "ascii" else UNICODE
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return UNICODE if "utf" in locale.lower() else ASCII


def parse_state(word: str) -> State:
    """Read a state from the ledger; a word that is not in the list is unknown."""
    return State(word) if word in State._value2member_map_ else State.UNKNOWN


def parse_trend(word: str) -> Trend:
    """Read a trend from the ledger; a word that is not in the list is unknown."""
    return Trend(word) if word in Trend._value2member_map_ else Trend.UNKNOWN


def sparkline(values: Sequence[float | None], width: int, levels: str) -> str:
    """Draw the last values as a strip of `width` cells scaled to their maximum; a gap is a blank."""
    shown = list(values)[-width:]
    top = max((value for value in shown if value is not None), default=0.0)
    last = len(levels) - 1
    drawn = (
        " " if value is None else levels[0] if top <= 0 else levels[min(last, round(max(value, 0.0) / top * last))]
        for value in shown
    )
    return "".join(drawn).ljust(width)


def bar(part: float, width: int, glyphs: Glyphs) -> str:
    """Draw a progress bar; `part` from 0 to 1."""
    done = round(min(max(part, 0.0), 1.0) * width)
    return glyphs.full * done + glyphs.rest * (width - done)
