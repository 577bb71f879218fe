"""Facts and the sentences made from them: code decides by kinds and values, and only displays the sentences."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, Self, TypeVar, final

if TYPE_CHECKING:

    @final
    class Sentence:
        """A human-readable string that code can display but not inspect.

        For mypy, the only operation of this type is `str()`. At run time a sentence is a plain `str`, so JSON, SQLite
        and tests can use it directly.
        """

        def __init__(self, text: str) -> None: ...

        def __str__(self) -> str: ...

else:
    Sentence = str


def sentence_of(text: str) -> Sentence | None:
    """Return a string as a sentence; None if the string is empty."""
    return Sentence(text) if text else None


class FactKind(Enum):
    """Base class for closed lists of facts; a sentence with `{name}` placeholders defines each member.

    A refusal also has a remedy, which is a second sentence. A format after a colon determines how a value is shown:
    `{rows:number}`, `{free:size}`, `{time:duration}`, `{names:and}`, `{problems:;}`, `{tables:typed}` (as in a
    command), `{tables:few}` (at most three), `{files:file}` (a count with its noun), `{tables:is/are}` (the words for
    one value and for several values).

    A member is identified by its name: two members with the same sentence are distinct.
    """

    def __new__(cls, words: str, remedy: str = "") -> Self:
        """Number the members, because an Enum would otherwise treat members with equal values as aliases."""
        member = object.__new__(cls)
        member._value_ = len(cls.__members__)
        member._words, member._remedy = words, remedy
        return member

    if TYPE_CHECKING:
        _words: str
        _remedy: str

    @property
    def code(self) -> str:
        """The name of the kind in JSON."""
        return self.name.lower()

    def of(self, **values: object) -> "Fact[Self]":
        """Return a fact of this kind; a value is a string, number or other fact (as a reason), or a tuple of values."""
        return Fact(self, tuple(values.items()))


Kind = TypeVar("Kind", bound=FactKind, covariant=True)


@dataclass(frozen=True, slots=True)
class Fact(Generic[Kind]):
    """A fact: its kind, and the values that its sentence contains.

    A function that may refuse a request returns a Fact as its refusal, and None if it does not refuse.
    """

    kind: Kind
    values: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return self._filled(self.kind._words)

    @property
    def sentence(self) -> Sentence:
        """The human-readable sentence, with the values in place of its placeholders."""
        return Sentence(str(self))

    @property
    def remedy(self) -> Sentence | None:
        """What the user can do about the fact; None if its kind has no remedy."""
        return sentence_of(self._filled(self.kind._remedy))

    @property
    def fields(self) -> dict[str, object]:
        """The values of the fact by name, in a form that can be encoded as JSON."""
        return _written(dict(self.values))

    def as_json(self) -> dict[str, object]:
        """Return a JSON object with the fact's kind, values and sentence."""
        return {"kind": self.kind.code, **self.fields, "sentence": str(self)}

    def _filled(self, words: str) -> str:
        return words.format_map({name: _Shown(value) for name, value in self.values}) if words else ""


class _Shown:
    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __format__(self, how: str) -> str:
        value = self._value
        if not how:
            return ", ".join(map(str, value)) if isinstance(value, tuple) else _plain(value)
        # Most commands format no number.
        from core.text import wording

        if isinstance(value, tuple):
            texts = [*map(str, value)]
            if how == "few":
                return ", ".join(texts[:_FEW]) + (f" and {len(texts) - _FEW} more" if len(texts) > _FEW else "")
            if how in _SEPARATORS:
                return _SEPARATORS[how].join(texts)
            value = len(texts)
        assert isinstance(value, (int, float)), f"{how} formats numbers and tuples"
        match how:
            case "number":
                return wording.short_number(value)
            case "size":
                return wording.short_size(value)
            case "duration":
                return wording.long_duration(value)
            case _ if "/" in how:
                return how.split("/")[value != 1]
        return wording.counted(int(value), how)


_FEW = 3
_SEPARATORS = {"and": " and ", "or": " or ", ";": "; ", "typed": " "}


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: object) -> object:
    if isinstance(value, tuple):
        return [*map(_as_json, value)]
    return value.as_json() if isinstance(value, Fact) else value
