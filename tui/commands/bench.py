"""The command `bench`: measures latency, throughput and scalability of a project, and compares results."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from core.bench.request import BenchKind
from core.bench.result import BenchResult, result_from_json
from core.model.errors import Refused, UsageError
from core.model.names import TableName
from core.text.wording import counted, long_duration, short_number, short_size
from tui.command_line.context import CommandContext
from tui.presentation.reports.bench_results import head_lines, result_lines
from tui.presentation.styling.theme import choose_glyphs
from tui.project_folder.user_named_files import read_text, write_whole

if TYPE_CHECKING:
    from core.bench.scaled_project import Axis
    from tui.services.bench_scalability import ScaleOrder
    from tui.services.benchmark_runs import BenchOrder
    from tui.services.benchmarks import BenchTables

USUAL_BYTES = 200
"""Assumed size of a record, if it is not given."""

MOST_MB = 64
"""Largest result that is read, in megabytes."""


def bench(context: CommandContext) -> int:
    """Run a benchmark in an environment of its own, which is deleted afterwards, or show a result."""
    match context.args.subcommand:
        case "latency":
            return _measure(context, BenchKind.LATENCY)
        case "throughput":
            return _measure(context, BenchKind.THROUGHPUT)
        case "startup":
            return _measure(context, BenchKind.STARTUP)
        case "scale":
            return _scale(context)
        case "compare":
            return _compare(context)
        case "show":
            return _show(context, _read(context, context.args.file))
    raise UsageError(
        "bench needs to know what to measure", remedy="headgate bench latency, throughput, scale, startup or compare"
    )


def _show(context: CommandContext, result: BenchResult) -> int:
    """Print a result, and write it to the files that were named."""
    args, output = context.args, context.output
    if result.kind == BenchKind.COMPARE:
        if args.svg:
            raise UsageError("a comparison of texts has no picture", remedy="leave out --svg")
        from core.bench.result_comparison import compare_sides
        from tui.presentation.reports.bench_comparison import comparison_lines

        notes = [f"note: {each}" for each in result.notes]
        lines = [*head_lines(result), "", *comparison_lines(compare_sides(result), ()), *notes]
        output.answer(result.as_json(), lines=lines)
        return 0
    if args.svg:
        from tui.presentation.diagrams.bench_svg import bench_svg

        write_whole(os.path.join(context.cwd, args.svg), bench_svg(result))
        output.say(f"written: {args.svg}")
    if out := getattr(args, "out", None):
        write_whole(os.path.join(context.cwd, out), json.dumps(result.as_json(), indent=1) + "\n")
        output.say(f"written: {out}")
    output.answer(result.as_json(), lines=result_lines(result, choose_glyphs(context.environ)))
    return 0


def _compare(context: CommandContext) -> int:
    """Compare two results, or measure old and new texts in pairs. Returns 1 if something is worse."""
    from core.bench.result_comparison import FigureChange, compare_results, compare_sides, other_conditions
    from tui.presentation.reports.bench_comparison import comparison_lines, comparison_markdown

    args, output = context.args, context.output
    if args.markdown and output.as_json:
        raise UsageError("--json and --markdown cannot be combined", remedy="give one of them")
    if args.since is None:
        if len(args.words) != 2:
            remedy = "headgate bench compare OLD.json NEW.json, or --since REF"
            raise UsageError(f"two results are compared, and {len(args.words)} were given", remedy=remedy)
        old, new = (_read(context, path) for path in args.words)
        found, conditions = compare_results(old, new), other_conditions(old, new)
    else:
        old, new = None, _measured_since(context)
        found, conditions = compare_sides(new), ()
        if args.out:
            write_whole(os.path.join(context.cwd, args.out), json.dumps(new.as_json(), indent=1) + "\n")
            output.say(f"written: {args.out}")
    lines = comparison_markdown(found, conditions, new) if args.markdown else comparison_lines(found, conditions)
    notes = list(dict.fromkeys((*(old.notes if old is not None else ()), *new.notes)))
    lines += [each for note in notes for each in (["", f"Note: {note}."] if args.markdown else [f"note: {note}"])]
    listed = [{**asdict(each), "change": str(each.change)} for each in found]
    output.answer({"format": "headgate/bench-comparison", "figures": listed, "notes": notes}, lines=lines)
    return int(any(each.change is FigureChange.WORSE for each in found))


def _measured_since(context: CommandContext) -> BenchResult:
    from tui.services.benchmark_runs import BenchOrder, Reports, run_comparison
    from tui.services.benchmarks import choose_tables, texts_before

    args, output, operations = context.args, context.output, context.operations
    _refuse_protected(context)
    old_texts, changed = texts_before(operations, args.since)
    if not (args.words or args.product or changed):
        raise UsageError(f"no statement differs from {args.since}", remedy="name the tables to compare all the same")
    tables = choose_tables(operations, args.words or ([] if args.product else sorted(changed)), args.product)
    settings = {"repeat": args.pairs, "probe_rows": args.rows}
    purpose = f"headgate bench compare --since {args.since}"
    order = BenchOrder(
        BenchKind.COMPARE, tables, purpose, settings, _samples(context, tables), cores=args.cores, since=args.since
    )
    _begin(context, _cost(context, order))
    result = run_comparison(operations, order, old_texts, Reports(output.progress, lambda trial: None, output.say))
    output.clear()
    return result


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
    from tui.services.benchmark_runs import Reports, refuse_sizes, run_benchmark, run_startup
    from tui.services.benchmarks import choose_tables

    args, output, operations = context.args, context.output, context.operations
    _refuse_protected(context)
    tables = choose_tables(operations, args.tables, args.product)
    order = _order(context, kind, tables)
    refuse_sizes(operations, order)
    _begin(context, _cost(context, order))
    run = run_startup if kind is BenchKind.STARTUP else run_benchmark
    result = run(operations, order, Reports(output.progress, partial(_say_trial, context), output.say))
    output.clear()
    return _show(context, result)


def _say_trial(context: CommandContext, found: Mapping[str, Any]) -> None:
    verdict = "sustained" if found["sustained"] else "not sustained"
    context.output.say(f"  {short_number(found['rate'])} rows/s: {verdict}")


def _scale(context: CommandContext) -> int:
    from core.bench.scaled_project import Axis
    from tui.services.bench_scalability import run_scalability, scale_order
    from tui.services.benchmark_runs import Reports, refuse_sizes
    from tui.services.benchmarks import choose_tables

    args, output, operations = context.args, context.output, context.operations
    _refuse_protected(context)
    axis = Axis(args.axis)
    measure = args.measure or ("throughput" if axis is Axis.CORES else "latency")
    kind = BenchKind.THROUGHPUT if measure == "throughput" else BenchKind.SCALE
    tables = choose_tables(operations, args.tables, args.product)
    order = scale_order(operations, _order(context, kind, tables), axis, args.points or _usual_points(axis))
    refuse_sizes(operations, order.measured)
    _begin(context, _scale_cost(context, order))
    result = run_scalability(operations, order, Reports(output.progress, partial(_say_trial, context), output.say))
    output.clear()
    return _show(context, result)


def _usual_points(axis: "Axis") -> tuple[int, ...]:
    cores = os.cpu_count() or 1
    return tuple(each for each in (1, 2, 4, cores) if each <= cores) if axis == "cores" else (1, 2, 4)


def _scale_cost(context: CommandContext, order: "ScaleOrder") -> list[str]:
    """Return what a measurement of scalability takes and writes, before it begins."""
    from core.ipc.environment_paths import ephemeral_root

    pool = context.operations.projects.read_sound_tables().project.environments[context.place.environment].pool
    low, high = order.expected_s(_longest_trigger_s(context, order.measured.tables))
    points = ", ".join(map(str, order.points))
    what = "the highest sustained rate" if order.measured.kind is BenchKind.THROUGHPUT else "latency under load"
    most = max(len(each.tables.measured) for each in order.points.values())
    cores = max(each.cores or pool.cores for each in order.points.values())
    return [
        f"this measures {what} of up to {counted(most, 'statement')}, with everything upstream, at {order.axis} "
        f"{points}, one after the other: {long_duration(low)} to {long_duration(high)}",
        f"for each point it starts an agent, a Spark server (up to {counted(cores, 'core')}, {pool.memory}) and a few "
        "Python processes",
        f"it writes {_load_words(order.measured)}, for each point, and what the statements make of it, in "
        f"{ephemeral_root(context.environ)}; all of it is deleted at the end of the point",
        *_system_lines(order.points[max(order.points)].tables, "for each point, "),
    ]


def _system_lines(tables: "BenchTables", when: str = "") -> list[str]:
    """Return the topics that are created and deleted, and what is not measured."""
    found = [
        f"{when}it creates topics at {servers}: {', '.join(f'it_*_{topic}' for topic in topics)}, with as many "
        "partitions as those that they replace, or one; it writes messages to no others, and deletes these at the end"
        for servers, topics in tables.topics.items()
    ]
    if tables.stand_ins:
        found.append(f"files stand for {', '.join(tables.stand_ins)}: no database is connected to or measured")
    return found


def _refuse_protected(context: CommandContext) -> None:
    if context.place.protected:
        raise Refused(f"{context.place.title} is not benchmarked", remedy="name another environment with --env")


def _begin(context: CommandContext, cost: Iterable[str]) -> None:
    """Say what a benchmark takes and writes, and delete what a killed one has left."""
    from tui.services.ephemeral_teardown import end_abandoned

    context.announce()
    for line in cost:
        context.output.say(line)
    for ended in end_abandoned(context.environ, context.output.progress):
        context.output.say(f"left by a benchmark or test that was killed: {ended.words()}")


def _order(context: CommandContext, kind: BenchKind, tables: "BenchTables") -> "BenchOrder":
    from tui.services.benchmark_runs import BenchOrder

    args = context.args
    if kind is BenchKind.STARTUP:
        words, given = " ".join(["headgate", "bench", str(kind), *args.tables]), _samples(context, tables)
        return BenchOrder(kind, tables, words, {"repeat": args.repeat}, samples=given, cores=args.cores)
    settings: dict[str, Any] = {
        "repeat": args.repeat,
        "rate": args.rate,
        "window_s": args.window or max(20.0, 4 * _longest_trigger_s(context, tables)),
        "record_bytes": args.record_bytes or (),
    }
    if kind is BenchKind.LATENCY:
        settings |= {"probes": args.probes, "probe_rows": args.probe_rows}
    elif kind is BenchKind.THROUGHPUT:
        settings |= {"most": args.most, "precision": 1 + args.precision / 100}
    words = " ".join(["headgate", "bench", context.args.subcommand, *args.tables])
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
    statements = counted(len(order.tables.measured), "statement")
    where = "two environments of their own" if order.kind is BenchKind.COMPARE else "an environment of its own"
    return [
        f"this measures {statements}, with everything upstream, in {where}: {long_duration(low)} to "
        f"{long_duration(high)}",
        f"it starts an agent for each, a Spark server ({cores}, {pool.memory}) and a few Python processes",
        f"it writes {_load_words(order)}, and what the statements make of it, in {ephemeral_root(context.environ)}; "
        "all of it is deleted at the end",
        *_system_lines(order.tables, "for each of them, " if order.kind is BenchKind.COMPARE else ""),
    ]


def _load_words(order: "BenchOrder") -> str:
    settings = order.settings
    size = max(settings.get("record_bytes") or (USUAL_BYTES,))
    match order.kind:
        case BenchKind.LATENCY | BenchKind.SCALE:
            return f"about {short_size(settings['rate'] * settings['window_s'] * size)} of load"
        case BenchKind.STARTUP:
            return "a few rows a second"
        case BenchKind.COMPARE:
            return f"about {short_size(2 * settings['repeat'] * settings['probe_rows'] * size)} of load"
    sizes = len(settings["record_bytes"])
    each = short_size(10_000 * settings["window_s"] * size)
    of = f" and each of {sizes} sizes of records" if sizes > 1 else ""
    return f"about {each} of load for each rate that is tried{of}, if that is 10k rows/s"
