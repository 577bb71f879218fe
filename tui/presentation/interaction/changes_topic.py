"""The help page on kinds of change, written from their table: what is done, why, what is lost, what else may be."""

import textwrap
from collections.abc import Iterator

from core.changes.kinds import CHANGE_KINDS, KIND_EXAMPLES, ChangeKind, ChangeKindDefinition, example_lines
from core.model.actions import EXECUTABLE, strategy_lines, typed_strategy

WIDTH = 80
_INDENT, _NAMES = 4, 12
_INTRODUCTION = """\
# Kinds of change

Headgate compares what is declared with what is deployed, and gives each difference a kind, which decides what a plan
does by default. The CHANGE column of a plan and `headgate diff OLD NEW` name it; plan documents hold its code (`row`)
and its name (`change`). The kinds stand here from mild to severe: of several in one edit the most severe counts, and
what cannot be told counts as `{worst}`.

Instead of the default, `--strategy T=WORD` takes another way where the plan offers it, and the plan says what it costs:

{strategies}

What is not executable yet ("not yet" below) can be planned with `--offline`; an agent refuses it."""


def changes_topic() -> str:
    """Write the page: an introduction, and a block for each kind, the mildest first."""
    blocks = (_block(facts) for facts in sorted(CHANGE_KINDS, key=lambda facts: facts.severity))
    strategies = textwrap.indent("\n".join(strategy_lines(WIDTH - _INDENT)), " " * _INDENT)
    introduction = _INTRODUCTION.format(worst=ChangeKind.STATE_CHANGED.definition.label, strategies=strategies)
    return "\n\n".join((introduction, *blocks)) + "\n"


def _block(facts: ChangeKindDefinition) -> str:
    rows = [f"{facts.label} ({facts.code})"]
    for name, words in _parts(facts):
        first, *others = textwrap.wrap(words, WIDTH - _INDENT - _NAMES - 2)
        rows += [f"  {name:<{_NAMES}}{first}", *(" " * (_NAMES + 2) + other for other in others)]
    for place, row in enumerate(example_lines(facts.kind) if facts.kind in KIND_EXAMPLES else ()):
        rows.append(f"  {'' if place else 'example':<{_NAMES}}{row}")
    return textwrap.indent("\n".join(rows), " " * _INDENT)


def _parts(facts: ChangeKindDefinition) -> Iterator[tuple[str, str]]:
    yield "by default", str(facts.action)
    yield "because", facts.why
    yield "loses", str(facts.loss_words)
    yield "instead", _instead(facts) or "nothing"
    if facts.note is not None:
        yield "note", str(facts.note.of())


def _instead(facts: ChangeKindDefinition) -> str:
    """Name the strategies as they are typed, those that no agent carries out yet behind the others."""
    able, planned = (
        ", ".join(typed_strategy(each) for each in facts.instead if (each in EXECUTABLE) is now)
        for now in (True, False)
    )
    return "; ".join(filter(None, (able, f"not yet: {planned}" if planned else "")))
