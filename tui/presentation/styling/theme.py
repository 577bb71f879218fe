"""Glyphs for UTF-8 and ASCII terminals, the tone of each state, and palettes with 256, 16 and no colours.

Every glyph appears next to a word and no state is shown by colour alone, so every combination is readable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    """Bars of a sparkline, lowest first."""
    done: str
    steps: Mapping[str, str] = field(default_factory=dict)
    """Glyphs by step state."""


_STATES = {
    State.ABSENT: ("·", ".", Tone.DIM),
    State.PENDING: ("·", ".", Tone.CHANGING),
    State.STARTING: ("◐", "~", Tone.CHANGING),
    State.RUNNING: ("●", "*", Tone.GOOD),
    State.DEGRADED: ("◍", "%", Tone.BAD),
    State.FAILED: ("✖", "X", Tone.BAD),
    State.STOPPING: ("◑", "~", Tone.CHANGING),
    State.STOPPED: ("■", "#", Tone.DIM),
    State.COMPLETED: ("✔", "+", Tone.DIM),
    State.UNKNOWN: ("?", "?", Tone.CHANGING),
}
"""UTF-8 glyph, ASCII glyph and tone of each state."""

_TRENDS = {
    Trend.DRAINING: ("▼", "v", Tone.CHANGING),
    Trend.STEADY: ("=", "=", Tone.PLAIN),
    Trend.GROWING: ("▲", "^", Tone.CHANGING),
    Trend.STALLED: ("‖", "!", Tone.BAD),
    Trend.STARVED: ("∅", "0", Tone.BAD),
    Trend.IDLE: ("·", ".", Tone.DIM),
    Trend.UNKNOWN: (" ", " ", Tone.DIM),
}

_STEPS = {
    "waits": ("·", ".", Tone.DIM),
    "running": ("◐", "~", Tone.CHANGING),
    "gate": ("◐", "~", Tone.CHANGING),
    "halted": ("‖", "!", Tone.BAD),
    "done": ("✔", "+", Tone.GOOD),
    "failed": ("✖", "X", Tone.BAD),
    "blocked": ("⊘", "!", Tone.BAD),
    "skipped": ("-", "-", Tone.DIM),
    "cancelled": ("-", "-", Tone.DIM),
    "kept": ("-", "-", Tone.DIM),
}

STATE_TONES = {state: look[2] for state, look in _STATES.items()}
TREND_TONES = {trend: look[2] for trend, look in _TRENDS.items()}
STEP_TONES = {step: look[2] for step, look in _STEPS.items()}

UNICODE = Glyphs(
    states={state: look[0] for state, look in _STATES.items()},
    trends={trend: look[0] for trend, look in _TRENDS.items()},
    steps={step: look[0] for step, look in _STEPS.items()},
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
)

ASCII = Glyphs(
    states={state: look[1] for state, look in _STATES.items()},
    trends={trend: look[1] for trend, look in _TRENDS.items()},
    steps={step: look[1] for step, look in _STEPS.items()},
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
)

WORDS_ALONE = replace(
    UNICODE, states=dict.fromkeys(_STATES, ""), trends=dict.fromkeys(_TRENDS, ""), steps=dict.fromkeys(_STEPS, "")
)
"""Glyphs without symbols for states, trends and steps, for the command line, whose output may be parsed by programs."""


def choose_glyphs(environ: Mapping[str, str]) -> Glyphs:
    """Choose ASCII glyphs unless the locale is UTF-8. HEADGATE_GLYPHS=ascii or unicode overrides the choice."""
    wished = environ.get("HEADGATE_GLYPHS", "").lower()
    if wished in ("ascii", "unicode"):
        return ASCII if wished == "ascii" else UNICODE
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return UNICODE if "utf" in locale.lower() else ASCII


# A lookup is faster than the constructors of the enumerations, which the first frame would call for each statement.
_STATE_BY_WORD = {str(state): state for state in State}
_TREND_BY_WORD = {str(trend): trend for trend in Trend}


def parse_state(word: str) -> State:
    """Parse a state recorded in the ledger. An unrecognized value becomes UNKNOWN."""
    return _STATE_BY_WORD.get(word, State.UNKNOWN)


def parse_trend(word: str) -> Trend:
    """Parse a trend recorded in the ledger. An unrecognized value becomes UNKNOWN."""
    return _TREND_BY_WORD.get(word, Trend.UNKNOWN)


def sparkline(values: Sequence[float | None], width: int, levels: str) -> str:
    """Draw a sparkline of the last `width` values, scaled to their maximum; None becomes a blank."""
    shown = list(values)[-width:]
    top = max((value for value in shown if value is not None), default=0.0)
    last = len(levels) - 1
    drawn = (
        " " if value is None else levels[0] if top <= 0 else levels[min(last, round(max(value, 0.0) / top * last))]
        for value in shown
    )
    return "".join(drawn).ljust(width)


def bar(part: float, width: int, glyphs: Glyphs) -> str:
    """Draw a progress bar. `part` is the completed fraction, from 0 to 1."""
    done = round(min(max(part, 0.0), 1.0) * width)
    return glyphs.full * done + glyphs.rest * (width - done)


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours and attributes of text. A colour is an index into the terminal's palette, or None for its default."""

    fg: int | None = None
    bg: int | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False
    underline: bool = False


@dataclass(frozen=True, slots=True)
class Palette:
    """The paint of each tone. `chosen` is used for the row under the cursor, `band` for the first line and dialogs."""

    name: str
    base: Paint
    tones: Mapping[Tone, Paint] = field(default_factory=dict)
    chosen: Paint = field(default_factory=lambda: Paint(reverse=True))
    band: Paint = field(default_factory=lambda: Paint(reverse=True))

    def paint(self, tone: Tone, *, chosen: bool = False, band: bool = False) -> Paint:
        """Return the paint of a tone on the normal background, on the cursor's row (`chosen`) or on a band (`band`)."""
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


_BOLD, _FAINT = Paint(bold=True), Paint(dim=True)


def _on_ground(ground: int, of_sixteen: int) -> tuple[Paint, Paint, Paint, Paint]:
    """Return the paints of an environment's name on a coloured ground; without colours, it is reversed."""
    wide, few = Paint(231, ground, bold=True), Paint(of_sixteen, bold=True, reverse=True)
    return wide, wide, few, Paint(bold=True, reverse=True)


# People who cannot tell red from green can distinguish blue, yellow and orange-red, so a good state is blue, not green.
_LOOKS: Mapping[Tone, tuple[Paint, Paint, Paint, Paint]] = {
    Tone.PLAIN: (Paint(), Paint(), Paint(), Paint()),
    Tone.DIM: (Paint(244), Paint(243), _FAINT, _FAINT),
    Tone.BAD: (Paint(209, bold=True), Paint(160, bold=True), Paint(1, bold=True), _BOLD),
    Tone.CHANGING: (Paint(221), Paint(94), Paint(3), Paint()),
    Tone.GOOD: (Paint(110), Paint(24), Paint(6), Paint()),
    Tone.ACCENT: (Paint(117), Paint(25), Paint(4, bold=True), Paint()),
    Tone.TITLE: (Paint(231, bold=True), Paint(16, bold=True), _BOLD, _BOLD),
    Tone.KEY: (Paint(117), Paint(25), _BOLD, _BOLD),
    Tone.ADDED: (Paint(117), Paint(25), Paint(6), _BOLD),
    Tone.REMOVED: (Paint(209), Paint(160), Paint(1), Paint()),
    Tone.GHOST: (Paint(239), Paint(249), _FAINT, _FAINT),
    Tone.MARK: (Paint(221, bold=True), Paint(94, bold=True), Paint(3, bold=True), _BOLD),
    Tone.PROTECTED: (
        Paint(231, 130, bold=True),
        Paint(231, 130, bold=True),
        Paint(1, bold=True, reverse=True),
        Paint(bold=True, reverse=True),
    ),
    Tone.RED: _on_ground(160, 1),
    Tone.AMBER: _on_ground(130, 3),
    Tone.GREEN: _on_ground(28, 2),
    Tone.BLUE: _on_ground(25, 4),
    Tone.OPEN: (Paint(117, bold=True), Paint(25, bold=True), _BOLD, _BOLD),
    Tone.FIELD: (Paint(231, underline=True), Paint(16, underline=True), Paint(underline=True), Paint(underline=True)),
}
"""Paint of each tone in the dark, light, 16-colour and monochrome palettes."""


def _tones(palette: int) -> Mapping[Tone, Paint]:
    return {tone: looks[palette] for tone, looks in _LOOKS.items()}


DARK = Palette("dark", Paint(252, 234), _tones(0), chosen=Paint(255, 24), band=Paint(bg=236))
LIGHT = Palette("light", Paint(236, 255), _tones(1), chosen=Paint(16, 153), band=Paint(bg=252))
SIXTEEN = Palette("sixteen", Paint(), _tones(2))
"""The terminal's own 16 colours on its own background, which are readable wherever the terminal's other output is."""
MONO = Palette("mono", Paint(), _tones(3))

BY_NAME = {palette.name: palette for palette in (DARK, LIGHT, SIXTEEN, MONO)}


def choose_palette(environ: Mapping[str, str]) -> Palette:
    """Choose a palette from the environment: HEADGATE_THEME, NO_COLOR, TERM (with COLORTERM), then COLORFGBG.

    HEADGATE_THEME is dark, light, sixteen or mono.
    """
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
