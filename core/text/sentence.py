"""Facts and the sentences made from them: decisions use kinds and values, sentences are only shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, Self, TypeVar, final

if TYPE_CHECKING:

    @final
    class Sentence:
        """A text for people: it can be shown, and nothing else.

        To mypy it is a type that has no operation but `str()`; in a running program it is that text itself, so that
        JSON, SQLite and tests take it as it is.
        """

        def __init__(self, text: str) -> None: ...

        def __str__(self) -> str: ...

else:
    Sentence = str


def sentence_of(text: str) -> Sentence | None:
    """Return a text as a sentence, or None if it is empty."""
    return Sentence(text) if text else None


class FactKind(Enum):
    """Base class of the kinds of a fact: each member is defined with its sentence, a template with `{name}` for values.

    A member is identified by its name: two members with the same sentence are distinct.
    """

    def __new__(cls, words: str) -> Self:
        """Number the members, because an Enum treats members with equal values as aliases."""
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member._words = words
        return member

    if TYPE_CHECKING:
        _words: str

    @property
    def code(self) -> str:
        """The name of this kind in JSON."""
        return self.name.lower()

    def of(self, **values: object) -> "Fact[Self]":
        """Return a fact of this kind; a value is a text, a number, a tuple of these, or another fact, the reason."""
        return Fact(self, tuple(values.items()))


Kind = TypeVar("Kind", bound=FactKind, covariant=True)


@dataclass(frozen=True, slots=True)
class Fact(Generic[Kind]):
    """A kind with the values for its sentence; a function that may refuse returns a Fact, or None if it does not
    refuse.
    """

    kind: Kind
    values: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return self.kind._words.format_map({name: _shown(value) for name, value in self.values})

    @property
    def sentence(self) -> Sentence:
        """The sentence for people, with the values filled in."""
        return Sentence(str(self))

    def as_json(self) -> dict[str, object]:
        """Return a JSON object with the kind, the values and the sentence."""
        return {"kind": self.kind.code, **_written(dict(self.values)), "sentence": str(self)}


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _written(values: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value.as_json() if isinstance(value, Fact) else list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
