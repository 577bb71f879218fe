"""`python -I -m pipelines.bench`: measures a running environment.

The request is read from stdin as one line of JSON, and the answers are written to stdout as lines of JSON. The end of
stdin means that the caller is gone, and ends the process.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from core.bench.made_up_sample import ComparedInSource, made_up_sample
from core.bench.replayed_load import ReplayedLoad, SourceSample, begun_at, joined_values, key_columns
from core.bench.request import BenchKind, BenchRequest, BenchSource, request_from_json
from core.bench.topic_inputs import TopicInputs
from core.model.errors import HeadgateError, UsageError
from core.model.names import TableName
from core.model.table_formats import table_format
from core.sql.kafka_topics import topic_place
from pipelines.bench.first_rows import FirstRows
from pipelines.bench.load_messages import is_of_topics, sampled_rows
from pipelines.bench.load_writer import LoadWriter, sized
from pipelines.bench.machine import machine_facts
from pipelines.bench.measurement import RunningBenchmark
from pipelines.bench.paired_benchmark import PairedBenchmark
from pipelines.bench.source_files import MOST_ROWS, read_sample, show_file, write_rows
from pipelines.bench.topic_load import TopicLoad

STATIC_ROWS = 1_000_000
"""Number of rows of a static side after which reading of its sample ends."""


def main() -> int:
    """Measure, and write the answers."""
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        request = request_from_json(json.loads(line))
        if request.kind is BenchKind.SEED:
            _seed(request)
        elif request.kind is BenchKind.SIZES:
            _loads(request)
        else:
            _say({"machine": machine_facts(request.place)})
            for answer in _answers(request, _loads(request)):
                _say(answer)
        _say({"done": True})
    except HeadgateError as error:
        _say({"error": error.as_json()})
    return 0


def _end_with_caller() -> None:
    sys.stdin.read()
    os._exit(1)


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _seed(request: BenchRequest) -> None:
    """Write the rows of tables that are read as static sides, which have to be there before their readers start."""
    for source in request.static:
        _say({"doing": "rows of static tables", "detail": source.table})
        sample = _sample(source, static=True)
        rows = begun_at(sample.rows, source.within, datetime.now(UTC)) if source.within else sample.rows
        show_file(write_rows(source, "static", rows))
        _say({"load": {source.table: {"rows": len(sample.rows), "made_up": sample.made_up}}})


def _answers(request: BenchRequest, loads: Mapping[int, ReplayedLoad]) -> Iterator[dict[str, Any]]:
    load = next(iter(loads.values()))
    every = request.statements + (request.old.statements if request.old is not None else ())
    written = (topic_place(each.place).topics for each in every if table_format(each.format).topics)
    sinks = frozenset(topic for topics in written for topic in topics)
    topics = TopicLoad(os.path.join(request.place, "load"), load.samples, TopicInputs(sinks))
    over_topics = [each for each in request.sources if table_format(each.format).topics]
    _say({"partitions": {each.table: topics.partitions(each) for each in over_topics}})
    if request.kind is BenchKind.COMPARE:
        return PairedBenchmark(request, load, topics).answers()
    sources = {each.table: each for each in request.sources}
    writer = LoadWriter(load, sources, name=request.phase.replace(" ", "-"), topics=topics)
    if request.kind is BenchKind.STARTUP:
        return FirstRows(request, writer).answers()
    return RunningBenchmark(request, writer, loads).answers()


def _loads(request: BenchRequest) -> Mapping[int, ReplayedLoad]:
    """Return the load for each size of records, which is 0 if they keep theirs."""
    samples = {each.table: _sample(each) for each in request.sources}
    listed, static = tuple(samples.values()), [_sample(each, static=True) for each in request.static]
    groups = {(each.table, name): group for each in (*request.sources, *request.static) for name, group in each.joined}
    keys = key_columns(listed, groups)
    load = ReplayedLoad(samples, keys, joined=joined_values(listed, static, groups, keys))
    _say({"load": {each.table: {"rows": len(each.rows), "made_up": each.made_up} for each in (*listed, *static)}})
    if not load.tables:
        raise UsageError("no source of these tables gets rows", remedy="name tables that stream from a source")
    return {size: sized(load, request.sources, size) if size else load for size in request.record_bytes or (0,)}


def _sample(source: BenchSource, *, static: bool = False) -> SourceSample:
    most = STATIC_ROWS if static else MOST_ROWS
    rows = sampled_rows(source) if is_of_topics(source.sample) else read_sample(source, most=most)
    if rows:
        return SourceSample(TableName(source.table), source.columns, rows, source.event_column)
    literals = {(column, equal): list(texts) for column, equal, texts in source.literals}
    names = {column: group.rpartition(".")[2] for column, group in source.joined}
    compared = ComparedInSource(names, source.ends, static=static, spaced=static and bool(source.within))
    return made_up_sample(source.table, source.columns, literals, event_column=source.event_column, compared=compared)


if __name__ == "__main__":
    sys.exit(main())
