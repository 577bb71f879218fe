"""Help pages by name: the files of `tui/help`, and the page generated from the table of change kinds."""

from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "help"
_CHANGES = "changes"


def help_topics() -> tuple[str, ...]:
    """List the pages by name."""
    return tuple(sorted((_CHANGES, *(path.stem for path in _FOLDER.glob("*.md")))))


def help_topic(name: str) -> str:
    """Return the text of a page that `help_topics` lists."""
    if name == _CHANGES:
        from tui.presentation.interaction.help_text import changes_topic

        return changes_topic()
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
