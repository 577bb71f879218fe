"""The command `bench`: measures latency and throughput of a project, and compares results."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.bench.request import BenchKind
from core.bench.result import BenchResult, result_from_json
from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.text.wording import counted, long_duration, short_number, short_size
from tui.command_line.context import CommandContext
from tui.presentation.reports.bench_results import result_lines
from tui.presentation.styling.theme import choose_glyphs
from tui.project_folder.user_named_files import read_text, write_whole

if TYPE_CHECKING:
    from tui.services.benchmark_runs import BenchOrder
    from tui.services.benchmarks import BenchTables

MOST_MB = 64
"""Largest result that is read, in megabytes."""


def bench(context: CommandContext) -> int:
    """Run a benchmark in an environment of its own, which is deleted afterwards, or show a result."""
    match context.args.subcommand:
        case "latency":
            return _measure(context, BenchKind.LATENCY)
        case "throughput":
            return _measure(context, BenchKind.THROUGHPUT)
        case "show":
            return _show(context, _read(context, context.args.file))
    raise UsageError("bench needs to know what to measure", remedy="headgate bench latency, throughput or show")


def _show(context: CommandContext, result: BenchResult) -> int:
    """Print a result, and write it to the files that were named."""
    args, output = context.args, context.output
    if args.svg:
        from tui.presentation.diagrams.bench_svg import bench_svg

        write_whole(os.path.join(context.cwd, args.svg), bench_svg(result))
        output.say(f"written: {args.svg}")
    if out := getattr(args, "out", None):
        write_whole(os.path.join(context.cwd, out), json.dumps(result.as_json(), indent=1) + "\n")
        output.say(f"written: {out}")
    output.answer(result.as_json(), lines=result_lines(result, choose_glyphs(context.environ)))
    return 0


def _read(context: CommandContext, path: str) -> BenchResult:
    text = read_text(
        os.path.join(context.cwd, path), path, most_mb=MOST_MB, remedy="name a file that --out has written"
    )
    try:
        return result_from_json(json.loads(text))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", remedy="name a file that --out has written") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error.summary}", remedy=error.remedy) from error


def _measure(context: CommandContext, kind: BenchKind) -> int:
    from tui.services.benchmark_runs import Reports, run_benchmark
    from tui.services.benchmarks import choose_tables
    from tui.services.ephemeral_environment import end_abandoned

    args, output, operations = context.args, context.output, context.operations
    if context.place.protected:
        raise Refused(f"{context.place.title} is not benchmarked", remedy="name another environment with --env")
    tables = choose_tables(operations, args.tables, args.product)
    order = _order(context, kind, tables)
    context.announce()
    for line in _cost(context, order):
        output.say(line)
    for ended in end_abandoned(context.environ, output.progress):
        output.say(f"left by a benchmark or test that was killed: {ended.words()}")

    def trial(found: Mapping[str, Any]) -> None:
        verdict = "sustained" if found["sustained"] else "not sustained"
        output.say(f"  {short_number(found['rate'])} rows/s: {verdict}")

    result = run_benchmark(operations, order, Reports(output.progress, trial, output.say))
    output.clear()
    return _show(context, result)


def _order(context: CommandContext, kind: BenchKind, tables: "BenchTables") -> "BenchOrder":
    from tui.services.benchmark_runs import BenchOrder

    args = context.args
    settings: dict[str, Any] = {
        "repeat": args.repeat,
        "rate": args.rate,
        "window_s": args.window or max(20.0, 4 * _longest_trigger_s(context, tables)),
        "record_bytes": args.record_bytes or 0,
    }
    if kind is BenchKind.LATENCY:
        settings |= {"probes": args.probes, "probe_rows": args.probe_rows}
    else:
        settings |= {"most": args.most, "precision": 1 + args.precision / 100}
    words = " ".join(["headgate", "bench", str(kind), *args.tables])
    return BenchOrder(kind, tables, words, settings, samples=_samples(context, tables), cores=args.cores)


def _longest_trigger_s(context: CommandContext, tables: "BenchTables") -> float:
    from core.model.names import trigger_s

    project = context.operations.projects.read_sound_tables().project
    return max(trigger_s(project.tables[name].settings.trigger) for name in tables.measured)


def _samples(context: CommandContext, tables: "BenchTables") -> dict[TableName, str]:
    """Return the files given with --sample, by source. Raises UsageError if one is of no source of the tables."""
    sources = {*tables.streamed, *tables.static}
    found: dict[TableName, str] = {}
    for word in context.args.sample:
        name, given, path = word.partition("=")
        if not given:
            if len(tables.streamed) != 1:
                remedy = f"give one as --sample {tables.streamed[0]}=FILE" if tables.streamed else "leave it out"
                raise UsageError(f"--sample {word} could be of {len(tables.streamed)} sources", remedy=remedy)
            name, path = tables.streamed[0], word
        if name not in sources:
            raise UsageError(
                f"--sample names {name}, which is no source of these tables", remedy=", ".join(sorted(sources))
            )
        place = os.path.join(context.cwd, os.path.expanduser(path))
        if not os.path.exists(place):
            raise UsageError(f"{path} does not exist", remedy="name a file or folder with sample rows")
        found[TableName(name)] = place
    return found


def _cost(context: CommandContext, order: "BenchOrder") -> list[str]:
    """Return what the benchmark takes and writes, before it begins."""
    from core.ipc.environment_paths import ephemeral_root

    pool = context.operations.projects.read_sound_tables().project.environments[context.place.environment].pool
    low, high = order.expected_s(_longest_trigger_s(context, order.tables))
    cores = counted(order.cores or pool.cores, "core")
    window_s, size = order.settings["window_s"], order.settings["record_bytes"] or 200
    rate = order.settings["rate"] if order.kind is BenchKind.LATENCY else 10_000
    at = (
        ""
        if order.kind is BenchKind.LATENCY
        else f" for each rate that is tried, if that is {short_number(rate)} rows/s"
    )
    return [
        f"this measures {counted(len(order.tables.measured), 'statement')}, with everything upstream, in an "
        f"environment of its own: {long_duration(low)} to {long_duration(high)}",
        f"it starts an agent, a Spark server ({cores}, {pool.memory}) and two Python processes",
        f"it writes about {short_size(rate * window_s * size)} of load{at}, and what the statements make of it, "
        f"in {ephemeral_root(context.environ)}; all of it is deleted at the end",
    ]
