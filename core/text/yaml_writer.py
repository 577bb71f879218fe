"""Writes plain values as YAML, with mapping keys in their original order."""

from collections.abc import Mapping
from typing import Any

import yaml

from core.text.escaping import YAML_ASTRAL, escape_in_document, has_control_characters

_BLOCK_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def as_yaml_with_blocks(document: Mapping[str, Any]) -> str:
    """Return a document as YAML, with multi-line strings such as SQL as literal blocks."""
    return _dumped(document, _BlockDumper)


class _BlockDumper(_BLOCK_DUMPER):  # type: ignore[misc]  # a class of PyYAML's extension, which has no types
    """A YAML dumper that writes multi-line strings as literal blocks."""


_BlockDumper.add_representer(str, lambda dumper, text: _represented(dumper, text, style="|" if "\n" in text else None))


_DUMPER: type = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

MOST_LEVELS = 100
"""Maximum nesting of a document; limited because the writer is recursive."""


def as_yaml(document: Any) -> str:
    """Return a document of mappings, lists, strings, numbers and nulls as YAML.

    The document must not be nested more than `MOST_LEVELS` deep.
    """

    return _dumped(document, _Plain)


class _Plain(_DUMPER):  # type: ignore[misc]  # libyaml's dumper where PyYAML was built with it.
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Plain.add_representer(str, lambda dumper, text: _represented(dumper, text, style=None))


def _dumped(document: Any, dumper: type) -> str:
    text = str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))
    return escape_in_document(text, astral=YAML_ASTRAL)


def _represented(dumper: Any, text: str, *, style: str | None) -> Any:
    # Invisible and control characters can be escaped only in double quotes.
    quoted = '"' if has_control_characters(text) else style
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=quoted)
