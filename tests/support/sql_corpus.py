"""The corpus of statements, with Spark's recorded verdicts and our own in one comparable form.

Each file `tests/fixtures/corpus/*.txt` is about one construct; its cases begin with `=== name [flags]`. Flags: `bom`
puts a byte-order mark first, `crlf` ends lines as Windows does, `stream` reads every table as a stream. In a case of
several statements, a line `-- next` separates them. `tables.sql` creates the tables and views, one statement per line.
"""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "fixtures" / "corpus"
NO_MERGE = "read by the parser; parquet tables cannot be merged into"
RECORD = FOLDER / "spark-4.2.0.json"


@dataclass(frozen=True)
class Case:
    """A case of the corpus: a text of one or several statements."""

    construct: str
    name: str
    text: str
    """The text as it would be in a file, with its byte-order mark and line ends."""
    reads: str = "batch"

    @property
    def key(self) -> str:
        return f"{self.construct}: {self.name}"

    @property
    def statements(self) -> list[str]:
        """The statements of the text, separated and without their semicolons."""
        pieces = self.text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n-- next\n")
        return [piece.strip().strip(";").strip() for piece in pieces]


@dataclass(frozen=True)
class Verdict:
    """A verdict on one statement, given by us or by Spark."""

    refused: str = ""
    """Reason of the refusal; empty if the statement is accepted."""
    writes: tuple[str, ...] = ()
    reads: tuple[tuple[str, bool, str], ...] = ()
    """Tables read, as (table, whether it is streamed, the source's name); sorted."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of all reads; sorted."""
    watermarks: tuple[tuple[str, str], ...] = ()
    """Watermarks as (column, delay), with singular units; sorted."""
    columns: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    """Stateful operators, named as in Spark's progress; sorted."""
    note: str = field(default="", compare=False)


def cases() -> list[Case]:
    """Read all cases of the corpus, ordered by file and line."""
    found: list[Case] = []
    for path in sorted(FOLDER.glob("*.txt")):
        for block in re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            head, _, text = block.partition("\n")
            named = re.fullmatch(r"(?P<name>.*?)(?: \[(?P<flags>[a-z ]+)\])?", head)
            assert named is not None
            flags = (named["flags"] or "").split()
            text = text.rstrip("\n")
            if "crlf" in flags:
                text = text.replace("\n", "\r\n")
            if "bom" in flags:
                text = f"\ufeff{text}"
            found.append(Case(path.stem, named["name"], text, "stream" if "stream" in flags else "batch"))
    assert len({case.key for case in found}) == len(found), "two cases have one name"
    return found


def tables() -> list[str]:
    """Return the statements that create the corpus's tables and views."""
    return [line.rstrip(";") for line in (FOLDER / "tables.sql").read_text(encoding="utf-8").splitlines() if line]


def load() -> dict[str, list[Verdict]]:
    """Read Spark's recorded verdicts, by the key of the case, one verdict per statement."""
    recorded: dict[str, list[dict[str, Any]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return {key: [_verdict(each) for each in verdicts] for key, verdicts in recorded.items()}


def save(verdicts: dict[str, list[Verdict]]) -> None:
    """Record Spark's verdicts, with one line per case."""
    lines = []
    for key, found in verdicts.items():
        packed = [{name: value for name, value in asdict(each).items() if value} for each in found]
        lines.append(f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(packed, ensure_ascii=False)}")
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _verdict(packed: dict[str, Any]) -> Verdict:
    return Verdict(
        refused=packed.get("refused", ""),
        writes=tuple(packed.get("writes", ())),
        reads=tuple((table, streaming, name) for table, streaming, name in packed.get("reads", ())),
        options=tuple((key, value) for key, value in packed.get("options", ())),
        watermarks=tuple((column, delay) for column, delay in packed.get("watermarks", ())),
        columns=tuple(packed.get("columns", ())),
        operators=tuple(packed.get("operators", ())),
        note=packed.get("note", ""),
    )
