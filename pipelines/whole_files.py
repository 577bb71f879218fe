"""Files that are replaced atomically, and the JSON objects in them."""

import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically. Readers see the old or the new content, and Spark ignores the temporary dot-file."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if the file is missing or does not contain a complete object."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
