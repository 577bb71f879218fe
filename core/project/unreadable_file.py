"""Files that could not be read, as values among the texts of a project."""

from collections.abc import Mapping


class UnreadableFile(str):
    """Stands among a project's texts for a file that could not be read; readers of a project report it as a Problem.

    Its plain string value, which is also its JSON form, contains NUL characters, which no readable file contains.
    """

    __slots__ = ("reason", "remedy")

    reason: str
    remedy: str

    def __new__(cls, reason: str, remedy: str) -> "UnreadableFile":
        made = super().__new__(cls, f"\0{reason}\0{remedy}")
        made.reason, made.remedy = reason, remedy
        return made

    def __reduce__(self) -> tuple[type["UnreadableFile"], tuple[str, str]]:
        return UnreadableFile, (self.reason, self.remedy)


def texts_from_json(texts: Mapping[str, object]) -> dict[str, str]:
    """Return a project's texts by path, as they were before they were written as JSON."""
    return {path: _text_from_json(str(text)) for path, text in texts.items()}


def _text_from_json(text: str) -> str:
    if not text.startswith("\0"):
        return text
    reason, _, remedy = text[1:].partition("\0")
    return UnreadableFile(reason, remedy)
