"""How tones look: palettes of 256, 16 and no colours. State is never told by colour alone, so every palette will do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tui.presentation.styling.styled_text import Tone


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
