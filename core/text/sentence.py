"""Facts and the sentences made from them: decisions use kinds and values, sentences are only shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, Self, TypeVar, final

if TYPE_CHECKING:

    @final
    class Sentence:
        """A text for people, which code can show but not inspect.

        For mypy, the only operation of this type is `str()`. At run time a sentence is a plain `str`, so JSON, SQLite
        and tests accept it as it is.
        """

        def __init__(self, text: str) -> None: ...

        def __str__(self) -> str: ...

else:
    Sentence = str


def sentence_of(text: str) -> Sentence | None:
    """Return a text as a sentence, or None if it is empty."""
    return Sentence(text) if text else None


class FactKind(Enum):
    """Base class of closed lists of facts; a member is defined by its sentence, a template with `{name}` for each
    value.

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
        """Return a fact of this kind; a value is a text, a number, a tuple of these, or another fact that gives the
        reason.
        """
        return Fact(self, tuple(values.items()))


Kind = TypeVar("Kind", bound=FactKind, covariant=True)


@dataclass(frozen=True, slots=True)
class Fact(Generic[Kind]):
    """A kind, with the values for its sentence.

    A function that may refuse returns its refusal as a Fact, or None if it does not refuse.
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
