"""Request to the process that runs a benchmark. It converts to JSON and back without loss."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from core.bench.batch_trace import TracedStatement, in_topological_order
from core.bench.keeping_up import LagObjective
from core.bench.watermark_waits import WatermarkWait
from core.model.names import TableName


class BenchKind(StrEnum):
    """What a benchmark measures."""

    SEED = "seed"
    """Nothing: the process only writes the rows of static sides."""
    SIZES = "sizes"
    """Nothing: the process only checks that records can be filled up to the sizes."""
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    STARTUP = "startup"
    """The time until every statement has written rows, after a start or a kill."""
    COMPARE = "compare"
    """The time in batches of old and new texts for the same rows, in alternating pairs."""
    SCALE = "scale"
    """Latency under load, or the highest rate, at each point of an axis."""


@dataclass(frozen=True, slots=True)
class BenchSource:
    """A source of the measured project, to which load is written."""

    table: TableName
    folder: str
    """Folder of the ephemeral environment to which files are written; for messages, the location of its topics."""
    format: str
    columns: tuple[tuple[str, str], ...]
    """Names and types of the declared columns."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the DDL, with keys in lower case."""
    sample: str = ""
    """File or folder with sample rows, or the location of topics; empty if rows have to be made up."""
    event_column: str = ""
    literals: tuple[tuple[str, bool, tuple[str, ...]], ...] = ()
    """Texts with which statements compare columns, as (column, whether for equality, texts)."""
    partitioning: tuple[str, ...] = ()
    """Partition columns of a Delta table; empty for other formats, whose files have all columns."""
    stands_in: bool = False
    """Whether its files stand for rows of a database."""
    joined: tuple[tuple[str, str], ...] = ()
    """Columns that statements equate with those of other sources, each with the name of its group, `table.column`."""
    ends: tuple[str, ...] = ()
    """Columns that end an interval with which statements compare times of another source."""
    within: str = ""
    """Column of a static side with times that statements compare with both ends of an interval of a stream."""


@dataclass(frozen=True, slots=True)
class BenchStatement:
    """A statement of the measured environment."""

    table: TableName
    place: str
    """Folder of the table itself, or the location of its topic."""
    format: str
    checkpoint: str
    sources: tuple[tuple[TableName, str, str], ...]
    """Streamed tables in the order of the SQL text, each as (table, folder of the table itself, format)."""
    trigger_s: float
    objective_s: float
    waits: WatermarkWait | None = None
    """When the watermark lets rows be written; None if the batch that reads their input writes them."""

    @property
    def traced(self) -> TracedStatement:
        """The statement as the tracer sees it."""
        sources = tuple(table for table, _, _ in self.sources)
        return TracedStatement(self.table, sources, self.waits)

    @property
    def objective(self) -> LagObjective:
        """The objective to which the statement is held."""
        return LagObjective(self.table, self.objective_s)


@dataclass(frozen=True, slots=True)
class BenchSide:
    """The environment with the old texts, when old and new texts are compared."""

    statements: tuple[BenchStatement, ...]
    folders: Mapping[TableName, str]
    """Folder of each source to which files are written, or the location of its topics."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure, with what load."""

    kind: BenchKind
    statements: tuple[BenchStatement, ...]
    sources: tuple[BenchSource, ...]
    """The sources from which statements stream."""
    static: tuple[BenchSource, ...] = ()
    """External tables that are only read as static sides."""
    repeat: int = 1
    probes: int = 12
    """Number of probes of an idle chain in each repetition."""
    probe_rows: int = 100
    """Rows of a probe, over all sources."""
    rate: float = 100.0
    """Rows per second over all sources: of the load for latency, or of the first trial of a search."""
    most: float = 1_000_000.0
    """Rate in rows per second at which a search ends."""
    window_s: float = 30.0
    """Seconds for which load is written and judged at each rate."""
    precision: float = 1.15
    """Factor between the highest sustained and the lowest failed rate at which a search ends."""
    record_bytes: tuple[int, ...] = ()
    """Sizes to which records are filled up, in bytes; empty to leave them as they are. Only a search for the highest
    rate has more than one, and is repeated for each.
    """
    place: str = "/"
    """A folder on the disk that is used."""
    since: float = 0.0
    """The moment after which first rows are awaited, in epoch seconds."""
    phase: str = ""
    """What happened at that moment, or the phase of all figures of a point of scalability."""
    repetition: int = 1
    old: BenchSide | None = None
    """None unless old and new texts are compared."""
    home: str = ""
    """Home of the environment, which records its server; empty to measure neither CPU nor memory."""
    agent: int = 0
    """Process id of its agent."""

    @property
    def in_order(self) -> tuple[BenchStatement, ...]:
        """The statements, each after those whose tables it streams."""
        return in_order(self.statements)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lead_s(self) -> dict[TableName, float]:
        """Return how long after the begin of a load its rows reach each statement as a steady stream, in seconds.

        Each statement upstream adds a trigger with its batch, and rows that wait for a watermark its delay and window.
        """
        leads: dict[TableName, float] = {}
        behind: dict[TableName, float] = {}
        for each in self.in_order:
            leads[each.table] = max((behind.get(source, 0.0) for source, _, _ in each.sources), default=0.0)
            waits = each.waits.delay_s + each.waits.length_s if each.waits is not None else 0.0
            behind[each.table] = leads[each.table] + 2 * each.trigger_s + waits
        return leads


def in_order(statements: Iterable[BenchStatement]) -> tuple[BenchStatement, ...]:
    """Return statements, each after those whose tables it streams."""
    by_name = {each.table: each for each in statements}
    return tuple(by_name[each.table] for each in in_topological_order(each.traced for each in by_name.values()))


def request_from_json(body: Mapping[str, Any]) -> BenchRequest:
    """Rebuild a request from the output of `BenchRequest.as_json`."""
    return BenchRequest(
        **{
            **body,
            "kind": BenchKind(body["kind"]),
            "statements": tuple(_statement(each) for each in body["statements"]),
            "sources": tuple(_source(each) for each in body["sources"]),
            "old": _side(body["old"]) if body["old"] is not None else None,
            "static": tuple(_source(each) for each in body["static"]),
            "record_bytes": tuple(body["record_bytes"]),
        }
    )


def _side(body: Mapping[str, Any]) -> BenchSide:
    folders = {TableName(table): folder for table, folder in body["folders"].items()}
    return BenchSide(tuple(_statement(each) for each in body["statements"]), folders)


def _statement(body: Mapping[str, Any]) -> BenchStatement:
    sources = tuple((TableName(table), place, format) for table, place, format in body["sources"])
    waits = WatermarkWait(**body["waits"]) if body["waits"] is not None else None
    return BenchStatement(**{**body, "table": TableName(body["table"]), "sources": sources, "waits": waits})


def _source(body: Mapping[str, Any]) -> BenchSource:
    literals = tuple((column, equal, tuple(texts)) for column, equal, texts in body["literals"])
    columns = tuple((name, kind) for name, kind in body["columns"])
    return BenchSource(
        **{
            **body,
            "table": TableName(body["table"]),
            "columns": columns,
            "literals": literals,
            "partitioning": tuple(body["partitioning"]),
            "joined": tuple((column, group) for column, group in body["joined"]),
            "ends": tuple(body["ends"]),
        }
    )
