"""Foreign text never affects a terminal or another reader, in any encoding."""

import json
import os
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import yaml

from core.text.escaping import (
    JSON_ASTRAL,
    escape_control_characters,
    escape_in_document,
    escape_markdown,
    escape_surrogates,
    has_control_characters,
    replace_control_characters,
)
from core.text.yaml_writer import as_yaml, as_yaml_with_blocks

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
UNSEEN = "\u034f\u115f\u1160\u17b4\u180b\u3164\ufe0f\uffa0\U000e0100"
"""Invisible characters; some of them have the category of a letter or a mark."""


@cache
def characters() -> list[str]:
    """Return all characters of Unicode, which take 80 MB and 0.1 s."""
    return [chr(code) for code in range(0x110000)]


@cache
def acting_characters() -> list[str]:
    return [char for char in characters() if acts(char)]


def acts(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or char in BIDI + UNSEEN


def in_yaml(write: Callable[[object], str]) -> Callable[[str], str]:
    return lambda text: write({"a": [text], f"k {text}": 1})


WRITERS: dict[str, Callable[[str], str]] = {
    "text": escape_control_characters,
    "sign": replace_control_characters,
    "markdown": escape_markdown,
    "json": lambda text: escape_in_document(json.dumps([text], ensure_ascii=False), astral=JSON_ASTRAL),
    "yaml": in_yaml(as_yaml),
    "yaml with blocks": in_yaml(as_yaml_with_blocks),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_no_character_of_unicode_that_acts_on_a_reader_gets_through(write: Callable[[str], str]) -> None:
    acting = [char for char in acting_characters() if not (write in SAFE and unicodedata.category(char) == "Cs")]
    written = "".join(write(f"a{char}b") for char in acting)
    assert {char for char in written if acts(char)} <= {"\t", "\n"}


SAFE = (WRITERS["yaml"], WRITERS["yaml with blocks"])
"""Writers that themselves refuse lone surrogates, as YAML does."""


def test_all_other_characters_stay_as_they_are() -> None:
    plain = [char for char in characters() if not has_control_characters(char) and char != "\n"]
    assert len(plain) > 1_100_000
    for begin in range(0, len(plain), 100_000):
        text = "".join(plain[begin : begin + 100_000])
        assert escape_control_characters(text) == replace_control_characters(text) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a\tb", "a\tb"),
        ("a\nb\x1b[2J\x9b", r"a\x0ab\x1b[2J\x9b"),
        ("x\u202ey", r"x\u202ey"),
        ("x\U000e0041y", r"x\U000e0041y"),
        ("caf\udce9 \ud800", r"caf\xe9 \ud800"),
        ("日本 é 😀 \u00a0", "日本 é 😀 \u00a0"),
    ],
)
def test_a_control_character_is_written_by_its_number(text: str, written: str) -> None:
    assert escape_control_characters(text) == written


def documents(text: str) -> Iterator[object]:
    yield json.loads(escape_in_document(json.dumps([text], ensure_ascii=False), astral=JSON_ASTRAL))[0]
    yield yaml.safe_load(as_yaml({"a": text}))["a"]
    yield yaml.safe_load(as_yaml_with_blocks({"a": text}))["a"]


@pytest.mark.parametrize("text", [BIDI, UNSEEN, "a\n\u202eb\n", "\x1b\x7f\x85\u2028", "\U000e0041\U0001d173 '\"\\"])
def test_a_document_means_the_very_characters(text: str) -> None:
    assert set(documents(text)) == {text}


def test_a_name_that_is_not_utf_8_is_written_by_its_bytes() -> None:
    assert escape_surrogates(os.fsdecode(b"/srv/\xc3\xa9\xff")) == "/srv/é\\xff"


@pytest.mark.parametrize("beside", ["", "\u2192"])
def test_a_document_is_escaped_alike_with_and_without_letters_beyond_ascii(beside: str) -> None:
    for code in range(128):
        found = escape_in_document(f"a{chr(code)}b{beside}", astral=JSON_ASTRAL)
        seen = chr(code).isprintable() or chr(code) in "\t\n"
        assert found == (f"a{chr(code)}b{beside}" if seen else f"a\\u{code:04x}b{beside}")
