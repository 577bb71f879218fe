"""How things look: glyphs for UTF-8 and for ASCII terminals, tones of states, and palettes of 256, 16 and no colours.

A glyph always stands beside a word, and no state is shown by colour alone, so any set of either is enough.
"""

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


@dataclass(frozen=True, slots=True)
class Paint:
    """A look: colours are indices of the terminal's palette, None its default."""

    fg: int | None = None
    bg: int | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False
    underline: bool = False


@dataclass(frozen=True, slots=True)
class Palette:
    """Looks by tone; `chosen` is the row under the cursor, `band` the first line and the dialog."""

    name: str
    base: Paint
    tones: Mapping[Tone, Paint] = field(default_factory=dict)
    chosen: Paint = field(default_factory=lambda: Paint(reverse=True))
    band: Paint = field(default_factory=lambda: Paint(reverse=True))

    def paint(self, tone: Tone, *, chosen: bool = False, band: bool = False) -> Paint:
        """Return the look of a tone on the plain ground, on the chosen row, or on a band."""
        own = self.tones.get(tone, Paint())
        ground = self.chosen if chosen else self.band if band else self.base
        fg = own.fg if own.fg is not None else self.base.fg
        if chosen and tone in (Tone.PLAIN, Tone.DIM, Tone.GHOST):
            fg = ground.fg if ground.fg is not None else fg
        bg = own.bg if own.bg is not None else ground.bg
        return Paint(
            fg=fg,
            bg=bg,
            bold=own.bold or (chosen and ground.bold),
            dim=own.dim and not chosen,
            reverse=own.reverse != ground.reverse if (own.reverse or ground.reverse) else False,
            underline=own.underline,
        )


def _tones(**looks: Paint) -> Mapping[Tone, Paint]:
    return {Tone(name): look for name, look in looks.items()}


# Blue, yellow and orange-red keep apart for people who do not see red against green; good is calm, not green.
DARK = Palette(
    name="dark",
    base=Paint(fg=252, bg=234),
    tones=_tones(
        dim=Paint(fg=244),
        bad=Paint(fg=209, bold=True),
        changing=Paint(fg=221),
        good=Paint(fg=110),
        accent=Paint(fg=117),
        title=Paint(fg=231, bold=True),
        key=Paint(fg=117),
        added=Paint(fg=117),
        removed=Paint(fg=209),
        ghost=Paint(fg=239),
        mark=Paint(fg=221, bold=True),
        protected=Paint(fg=231, bg=130, bold=True),
        open=Paint(fg=117, bold=True),
        field=Paint(fg=231, underline=True),
    ),
    chosen=Paint(fg=255, bg=24),
    band=Paint(bg=236),
)

LIGHT = Palette(
    name="light",
    base=Paint(fg=236, bg=255),
    tones=_tones(
        dim=Paint(fg=243),
        bad=Paint(fg=160, bold=True),
        changing=Paint(fg=94),
        good=Paint(fg=24),
        accent=Paint(fg=25),
        title=Paint(fg=16, bold=True),
        key=Paint(fg=25),
        added=Paint(fg=25),
        removed=Paint(fg=160),
        ghost=Paint(fg=249),
        mark=Paint(fg=94, bold=True),
        protected=Paint(fg=231, bg=130, bold=True),
        open=Paint(fg=25, bold=True),
        field=Paint(fg=16, underline=True),
    ),
    chosen=Paint(fg=16, bg=153),
    band=Paint(bg=252),
)

# The terminal's own 16 colours on its own ground: readable wherever its owner can read anything.
SIXTEEN = Palette(
    name="sixteen",
    base=Paint(),
    tones=_tones(
        dim=Paint(dim=True),
        bad=Paint(fg=1, bold=True),
        changing=Paint(fg=3),
        good=Paint(fg=6),
        accent=Paint(fg=4, bold=True),
        title=Paint(bold=True),
        key=Paint(bold=True),
        added=Paint(fg=6),
        removed=Paint(fg=1),
        ghost=Paint(dim=True),
        mark=Paint(fg=3, bold=True),
        protected=Paint(fg=1, bold=True, reverse=True),
        open=Paint(bold=True),
        field=Paint(underline=True),
    ),
)

MONO = Palette(
    name="mono",
    base=Paint(),
    tones=_tones(
        dim=Paint(dim=True),
        bad=Paint(bold=True),
        title=Paint(bold=True),
        key=Paint(bold=True),
        ghost=Paint(dim=True),
        mark=Paint(bold=True),
        added=Paint(bold=True),
        removed=Paint(),
        protected=Paint(bold=True, reverse=True),
        open=Paint(bold=True),
        field=Paint(underline=True),
    ),
)

BY_NAME = {palette.name: palette for palette in (DARK, LIGHT, SIXTEEN, MONO)}


def choose_palette(environ: Mapping[str, str]) -> Palette:
    """Choose by HEADGATE_THEME (dark, light, sixteen, mono), NO_COLOR, TERM and COLORFGBG, in this order."""
    wished = BY_NAME.get(environ.get("HEADGATE_THEME", ""))
    if wished is not None:
        return wished
    if environ.get("NO_COLOR"):
        return MONO
    term = environ.get("TERM", "")
    if "256" not in term and "direct" not in term and not environ.get("COLORTERM"):
        return MONO if term in ("vt100", "vt220") else SIXTEEN
    ground = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in ("7", "15") else DARK
