"""The corpus of statements, Spark's recorded answers about them, and ours, in one form that can be compared.

`tests/fixtures/corpus/*.txt` hold one construct each: cases begin with `=== name [flags]`. Flags: `bom` puts a
byte-order mark first, `crlf` ends lines as Windows does, `stream` reads every table as a stream. In a case of several
statements a line `-- next` stands before each further one. `tables.sql` makes what they read, a statement a line.
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
    """One text of the corpus."""

    construct: str
    name: str
    text: str
    """As it would stand in a file, with its byte-order mark and line ends."""
    reads: str = "batch"

    @property
    def key(self) -> str:
        return f"{self.construct}: {self.name}"

    @property
    def statements(self) -> list[str]:
        """The statements one by one, as Spark takes them."""
        pieces = self.text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n-- next\n")
        return [piece.strip().strip(";").strip() for piece in pieces]


@dataclass(frozen=True)
class Verdict:
    """What is said of one statement, by us or by Spark."""

    refused: str = ""
    """Why, empty when it is accepted."""
    writes: tuple[str, ...] = ()
    reads: tuple[tuple[str, bool, str], ...] = ()
    """Table, whether as a stream, and the source's name; sorted."""
    options: tuple[tuple[str, str], ...] = ()
    """Of all reads; sorted."""
    watermarks: tuple[tuple[str, str], ...] = ()
    """Column and delay, singular units; sorted."""
    columns: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    """Stateful ones as Spark's progress names them; sorted."""
    note: str = field(default="", compare=False)


def cases() -> list[Case]:
    """Read the corpus, in the order of files and lines."""
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
    """Return the statements that make the tables and views."""
    return [line.rstrip(";") for line in (FOLDER / "tables.sql").read_text(encoding="utf-8").splitlines() if line]


def load() -> dict[str, list[Verdict]]:
    """Read Spark's recorded verdicts, by the case's key, one for each statement."""
    recorded: dict[str, list[dict[str, Any]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return {key: [_verdict(each) for each in verdicts] for key, verdicts in recorded.items()}


def save(verdicts: dict[str, list[Verdict]]) -> None:
    """Write Spark's verdicts, one case a line."""
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
