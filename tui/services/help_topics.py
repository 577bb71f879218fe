"""Help pages by name: the files of `tui/help`, and a page generated from the table of change kinds."""

from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "help"
_CHANGES = "changes"


def help_topics() -> tuple[str, ...]:
    """Return the names of all help pages, sorted."""
    return tuple(sorted((_CHANGES, *(path.stem for path in _FOLDER.glob("*.md")))))


def help_topic(name: str) -> str:
    """Return the text of a help page. `name` must be one of `help_topics`."""
    if name == _CHANGES:
        from tui.presentation.interaction.help_text import changes_topic

        return changes_topic()
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
