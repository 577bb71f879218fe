"""headgate bench: what is refused before anything starts, what is said first, and how results are shown."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from command_line import written

from core.bench.quantiles import distribution
from core.bench.request import BenchKind
from core.bench.result import BenchResult, Figure, FigureKind, TrialRecord, result_from_json
from core.model.errors import HeadgateError
from tui.command_line import exit_codes
from tui.services import bench_scalability, benchmark_runs, benchmarks, ephemeral_teardown
from tui.services.bench_scalability import ScaleOrder
from tui.services.benchmark_runs import BenchOrder, Reports

MACHINE = {
    "cores": 2, "memory": 8 << 30, "java": 21, "spark": "4.2.0", "disk_kind": "ext4", "disk_free": 1, "load": 0.5,
}  # fmt: skip


def figures(phase: str, *, repetition: int = 1, add: float = 0.0) -> tuple[Figure, ...]:
    spread = distribution([each + add for each in (1.0, 2.0, 3.0, 40.0)])
    stages = {FigureKind.WAIT: 0.5, FigureKind.BATCH: 1.5, FigureKind.WATERMARK: 0.0}
    path = {FigureKind.WAITS: 0.5, FigureKind.BATCHES: 1.5, FigureKind.WATERMARKS: 0.0}
    return (
        Figure(FigureKind.LATENCY, phase, "a", repetition, 2.0 + add, spread, "landed", 2, "no rows"),
        Figure(FigureKind.EVENT_LATENCY, phase, "a", repetition, 2.5, spread, "landed"),
        *(Figure(kind, phase, "a", repetition, value, None, "landed") for kind, value in (stages | path).items()),
    )


def result(kind: BenchKind, *given: Figure, trials: tuple[TrialRecord, ...] = ()) -> BenchResult:
    return BenchResult(
        str(kind), "p", "dev", 1.8e9, 200.0, "0123456789abcdef", True, MACHINE, {"rate": 100.0, "window_s": 20.0},
        given, trials, (("a", "landed"),), ("a note",),
    )  # fmt: skip


LATENCY = result(BenchKind.LATENCY, *figures("idle"), *figures("load", add=1.0))


def trial(rate: float, longest_s: float, keeping: str) -> TrialRecord:
    judged = {
        "table": "a", "keeping": keeping, "longest_s": longest_s, "objective_s": 60.0, "busy": 0.4, "inputs": 9,
        "unread": 0,
    }  # fmt: skip
    return TrialRecord(1, rate, keeping == "keeps up", 10, 20.0, (judged,))


RATES = result(
    BenchKind.THROUGHPUT,
    *(Figure(FigureKind.RATE, "", table, 1, 500.0) for table in ("", "a")),
    *(Figure(FigureKind.FAILED_RATE, "", table, 1, 1000.0) for table in ("", "a")),
    trials=(trial(500, 12, "keeps up"), trial(1000, 75, "behind its objective")),
)

Run = Callable[[BenchResult], list[BenchOrder]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Replace the measurement by one that returns a result, and return the orders that it receives."""

    def scripted(found: BenchResult) -> list[BenchOrder]:
        asked: list[BenchOrder] = []

        def run_benchmark(operations: Any, order: BenchOrder, reports: Reports) -> BenchResult:
            asked.append(order)
            return found

        monkeypatch.setattr(benchmark_runs, "run_benchmark", run_benchmark)
        monkeypatch.setattr(benchmarks, "run_child", lambda request, environ: iter(()))
        monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
        return asked

    return scripted


def said(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert exit_codes.run_command_line(words) == code
    found = capsys.readouterr()
    return found.out + found.err


def test_what_it_costs_and_writes_is_said_first(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    asked = run(LATENCY)
    text = said(["bench", "latency", "a", "--rate", "1000", "--record-bytes", "500", "--cores", "1"], capsys)
    assert "this measures 1 statement, with everything upstream, in an environment of its own: " in text
    assert "a Spark server (1 core, " in text
    assert " of load" in text and "all of it is deleted at the end" in text
    (order,) = asked
    assert (order.kind, order.tables.measured, order.tables.streamed) == (BenchKind.LATENCY, ("a",), ("landed",))
    assert order.settings["rate"] == 1000 and order.settings["record_bytes"] == (500,)


def test_a_latency_shows_both_phases_with_stages_and_what_did_not_arrive(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run(LATENCY)
    lines = [" ".join(line.split()) for line in said(["bench", "latency"], capsys).splitlines()]
    for line in (
        "latency of p, with the settings of dev, commit 0123456789ab, with changes that are not committed",
        "2 cores, 8.6 GB memory, Java 21, Spark 4.2.0, ext4 disk, load 0.5",
        "idle, one probe after another:",
        "a landed 2.0 s - - 2.5 s 0.5 s 1.5 s 0.0 s 4 of 6",
        "P95 and P99 need 10 inputs, and there are 4: more --probes give more",
        "a: 2 inputs of landed wrote no rows",
        "a landed 0.5 s 1.5 s 0.0 s",
        "note: a note",
    ):
        assert line in lines
    assert any(line.startswith("a from landed ") and line.endswith(" 2.0 s, at most 40 s") for line in lines)


def test_the_table_of_cpu_and_memory_is_at_most_80_columns_wide(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = (FigureKind.SERVER_CPU, FigureKind.SERVER_MEMORY, FigureKind.AGENT_CPU, FigureKind.AGENT_MEMORY)
    used = (Figure(kind, phase, "", 1, 541e6) for kind in kinds for phase in ("idle", "load"))
    run(replace(LATENCY, figures=(*LATENCY.figures, *used)))
    table = said(["bench", "latency"], capsys).split("PHASE", 1)[1].split("CPU: ")[0]
    assert "under load" in table and max(map(len, table.splitlines())) <= 80


def test_rates_show_the_chain_and_why_the_next_rate_failed(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run(RATES)
    text = said(["bench", "throughput"], capsys)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "chain 500/s 1k/s a 12 s 1m" in lines
    assert "a 500/s 1k/s behind its objective 12 s 1m" in lines
    assert "125% a, not sustained" in text


def test_a_result_is_written_read_again_and_drawn(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(LATENCY)
    found = written(["bench", "latency", "--out", "l.json", "--svg", "l.svg"], capsys)
    assert result_from_json(found) == result_from_json(json.loads((folder / "l.json").read_text())) == LATENCY
    assert written(["bench", "show", "l.json"], capsys) == found
    minidom.parse(str(folder / "l.svg"))
    (folder / "r.json").write_text(json.dumps(RATES.as_json()))
    assert "written: r.svg" in said(["bench", "show", "r.json", "--svg", "r.svg"], capsys)
    assert "500 rows/s, sustained: 36% of the limit (a)" in minidom.parse(str(folder / "r.svg")).toxml()


STARTUP = result(
    BenchKind.STARTUP,
    *(
        Figure(FigureKind.STARTUP, phase, table, n, value + n)
        for n in (1, 2, 3)
        for phase, table, value in (
            ("deployed", "", 20.0), ("start", "a", 30.0), ("server killed", "a", 15.0), ("agent killed", "", 2.0),
        )
    ),
)  # fmt: skip


def test_startups_show_every_moment_with_its_spread(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark_runs, "run_startup", lambda operations, order, reports: STARTUP)
    monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
    text = said(["bench", "startup", "--repeat", "3", "--svg", "s.svg", "--out", "s.json"], capsys)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "start until deployed 22 s 9%",
        "start a 32 s 6%",
        "kill of the server a 17 s 12%",
        "kill of the agent until another has the server 4.0 s 50%",
    ):
        assert line in lines
    assert "kill of the server" in minidom.parse(str(folder / "s.svg")).toxml()
    assert result_from_json(json.loads((folder / "s.json").read_text())) == STARTUP


def point(number: int, *, repetition: int = 1) -> list[Figure]:
    """Return the figures of a point of scalability, whose latency and CPU grow with it."""
    spread = distribution([number + each for each in (1.0, 2.0, 3.0)])
    phase = str(number)
    return [
        Figure(FigureKind.LATENCY, phase, "", repetition, number + 2.0, spread),
        Figure(FigureKind.WAITS, phase, "", repetition, 0.5),
        Figure(FigureKind.BATCHES, phase, "", repetition, 1.5),
        Figure(FigureKind.LATENCY, phase, "a", repetition, number + 1.0, spread, "landed"),
        Figure(FigureKind.SERVER_CPU, phase, "", repetition, number / 4),
        Figure(FigureKind.SERVER_MEMORY, phase, "", repetition, 5e8),
        Figure(FigureKind.AGENT_CPU, phase, "", repetition, 0.01),
        Figure(FigureKind.AGENT_MEMORY, phase, "", repetition, 2e8),
    ]


SCALE = replace(
    result(BenchKind.SCALE, *(each for n in (1, 4) for each in point(n))),
    parameters={
        "rate": 100.0, "axis": "statements", "measure": "latency", "points": [1, 4], "statements": {"1": 1, "4": 4},
    },
)  # fmt: skip
RATES_BY_SIZE = result(
    BenchKind.THROUGHPUT,
    *(Figure(FigureKind.RATE, size, "", 1, rate) for size, rate in (("100", 4000.0), ("1000", 500.0))),
    Figure(FigureKind.FAILED_RATE, "1000", "", 1, 1000.0),
    Figure(FigureKind.SERVER_CPU, "1000", "", 1, 1.5),
    trials=(
        replace(trial(4000, 12, "keeps up"), phase="100"),
        replace(trial(500, 12, "keeps up"), phase="1000"),
        replace(trial(1000, 75, "behind its objective"), phase="1000"),
    ),
)


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> Callable[[BenchResult], list[ScaleOrder]]:
    """Replace the measurement of scalability by one that returns a result."""

    def scripted(found: BenchResult) -> list[ScaleOrder]:
        asked: list[ScaleOrder] = []

        def run_scalability(operations: Any, order: ScaleOrder, reports: Reports) -> BenchResult:
            asked.append(order)
            return found

        monkeypatch.setattr(bench_scalability, "run_scalability", run_scalability)
        monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
        return asked

    return scripted


def test_scalability_says_its_cost_and_shows_every_point(
    folder: Path, scaled: Callable[[BenchResult], list[ScaleOrder]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = scaled(SCALE)
    text = said(["bench", "scale", "a", "--points", "1,4", "--svg", "s.svg", "--out", "s.json"], capsys)
    assert "this measures latency under load of up to 4 statements, with everything upstream, at " in text
    assert "all of it is deleted at the end of the point" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "scale of p, with the settings of dev, commit 0123456789ab, with changes that are not committed",
        "COPIES STATEMENTS P50 P95 P99 WAITS BATCHES WATERMARKS N",
        "4 4 6.0 s - - 0.5 s 1.5 s - 3",
        "P95 and P99 need 10 inputs, and there are 3: a longer --window gives more",
        "COPIES SERVER CPU SERVER MEMORY AGENT CPU AGENT MEMORY",
        "4 1.00 500 MB 0.01 200 MB",
    ):
        assert line in lines
    assert max(map(len, text.split("COPIES", 1)[1].split("note:")[0].splitlines())) <= 80
    assert "server 1.00" in minidom.parse(str(folder / "s.svg")).toxml()
    assert result_from_json(json.loads((folder / "s.json").read_text())) == SCALE
    (order,) = asked
    assert {n: each.tables.measured for n, each in order.points.items()} == {
        1: ("a",), 4: ("a", "a_copy2", "a_copy3", "a_copy4"),
    }  # fmt: skip
    assert order.points[4].texts is not None and any("a_copy4" in path for path in order.points[4].texts)


@pytest.mark.parametrize(
    ("words", "point", "cores", "conf"),
    [
        (["--axis", "cores"], 1, 1, {}),
        (["--axis", "partitions", "--points", "8"], 8, None, {"spark.sql.shuffle.partitions": "8"}),
        (["--axis", "chain", "a", "--points", "2"], 2, None, {}),
    ],
)
def test_every_axis_changes_what_it_names(
    folder: Path,
    scaled: Callable[[BenchResult], list[ScaleOrder]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    point: int,
    cores: int | None,
    conf: dict[str, str],
) -> None:
    asked = scaled(SCALE)
    said(["bench", "scale", *words], capsys)
    order = asked[0].points[point]
    assert (order.cores, dict(order.conf)) == (cores, conf)
    assert order.kind is (BenchKind.THROUGHPUT if "cores" in words else BenchKind.SCALE)
    assert ("a_chain2" in order.tables.measured) == ("chain" in words)


def test_a_point_that_fails_ends_the_measurement_and_keeps_the_points_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(operations: Any, order: BenchOrder, point_: int, reports: Reports) -> BenchResult:
        if point_ == 2:
            raise HeadgateError("out of memory", remedy="give more")
        return result(BenchKind.SCALE, *point(1))

    monkeypatch.setattr(bench_scalability, "_measure", measure)
    monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
    found = written(["bench", "scale", "a", "--points", "1,2,4"], capsys)
    assert found["notes"][-1] == "the measurement ended at statements 2: out of memory"
    assert {each["phase"] for each in found["figures"]} == {"1"}


def test_sizes_of_records_are_rows_of_one_table(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    asked = run(RATES_BY_SIZE)
    text = said(["bench", "throughput", "--record-bytes", "100,1000", "--svg", "r.svg"], capsys)
    assert asked[0].settings["record_bytes"] == (100, 1000)
    assert "for each rate that is tried and each of 2 sizes of records" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in ("100 4k/s 400 kB/s none up to 4k/s", "1000 500/s 500 kB/s 1k/s a", "1000 1.50 - - -"):
        assert line in lines
    picture = minidom.parse(str(folder / "r.svg"))
    title = picture.getElementsByTagName("title")[0].firstChild
    assert "rate 4k/s" in picture.toxml() and title is not None
    assert float(picture.documentElement.getAttribute("width")) > 8 * len(title.toxml())


def sides(slower: float, pairs: int = 6) -> BenchResult:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98]
    old = [Figure(FigureKind.WORK, "old", "a", n, values[n % 8]) for n in range(1, pairs + 1)]
    new = [Figure(FigureKind.WORK, "new", "a", n, values[(n + 3) % 8] * slower) for n in range(1, pairs + 1)]
    return result(BenchKind.COMPARE, *old, *new)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Replace the measurement of old and new texts by one that returns a result."""

    def scripted(found: BenchResult) -> list[BenchOrder]:
        asked: list[BenchOrder] = []

        def run_comparison(operations: Any, order: BenchOrder, old: Any, reports: Reports) -> BenchResult:
            asked.append(order)
            return found

        monkeypatch.setattr(benchmark_runs, "run_comparison", run_comparison)
        monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: ())
        return asked

    return scripted


def committed(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def edit(folder: Path) -> None:
    place = next(folder.glob("pipelines/*/p/a/sql-scripts/dml.a.sql"))
    place.write_text(place.read_text().replace("kind FROM", "upper(kind) AS kind FROM"))


def test_a_slower_statement_is_one_and_becomes_markdown_for_a_pull_request(
    folder: Path, compared: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(folder)
    edit(folder)
    asked = compared(sides(2.0))
    text = said(["bench", "compare", "--since", "HEAD", "--markdown", "--out", "c.json"], capsys, 1)
    assert "**worse: a (+101.2%)**" in text
    assert "| a | time in batches | 1.0 s | 2.0 s | +101.2% |" in text
    assert "over logarithms of ratios of 6 pairs." in text
    assert (asked[0].tables.measured, asked[0].since) == (("a",), "HEAD")
    assert "two environments of their own" in text
    assert result_from_json(json.loads((folder / "c.json").read_text())) == sides(2.0)


def test_a_result_of_old_and_new_texts_is_shown_as_a_comparison(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c.json").write_text(json.dumps(sides(2.0).as_json()))
    text = said(["bench", "show", "c.json"], capsys)
    assert "compare of p, with the settings of dev" in text and "worse: a (+101.2%)" in text
    assert "a comparison of texts has no picture" in said(["bench", "show", "c.json", "--svg", "c.svg"], capsys, 2)


def test_no_difference_says_what_could_be_hidden(
    folder: Path, compared: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    committed(folder)
    compared(sides(1.0))
    text = said(["bench", "compare", "--since", "HEAD", "a"], capsys)
    assert "no difference that 6 pairs can show; one of up to 10% could be hidden" in text
    found = written(["bench", "compare", "--since", "HEAD", "a"], capsys)
    assert [each["change"] for each in found["figures"]] == ["no difference shown"]
    compared(sides(3.0, pairs=2))
    assert "nothing can be concluded from fewer than 3" in said(["bench", "compare", "--since", "HEAD", "a"], capsys)


def test_two_files_are_compared_with_the_conditions_that_differ(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, add, cores in (("old", 0.0, 2), ("new", 5.0, 4)):
        given = [each for n in (1, 2, 3) for each in figures("idle", repetition=n, add=add + n / 10)]
        body = replace(result(BenchKind.LATENCY, *given), machine={**MACHINE, "cores": cores})
        (folder / f"{name}.json").write_text(json.dumps(body.as_json()))
    text = said(["bench", "compare", "old.json", "new.json"], capsys, 1)
    assert "worse: a idle (+2" in text
    assert "not the same: cores 2, now 4" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a.json"], "two results are compared, and 1 were given"),
        (["headgate.yml", "headgate.yml"], "headgate.yml is not JSON"),
        (["--since", "HEAD"], "no statement differs from HEAD"),
        (["--since", "nowhere"], "nowhere"),
        (["--since", "HEAD", "--markdown", "--json", "a"], "--json and --markdown cannot be combined"),
    ],
)
def test_mistakes_in_a_comparison_are_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    committed(folder)
    assert expected in said(["bench", "compare", *words], capsys, 2)


def test_repetitions_show_their_spread(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run(result(BenchKind.LATENCY, *(each for n in (1, 2, 3) for each in figures("idle", repetition=n, add=n - 1.0))))
    text = said(["bench", "latency", "--repeat", "3"], capsys)
    assert "3 repetitions: their p50 differ by 67% of their mean (median of all tables), at most by 67% (a)" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench"], "bench needs to know what to measure"),
        (["bench", "latency", "--product", "pp"], "'pp' is not a product"),
        (["bench", "latency", "landed"], "none of these tables has a statement"),
        (["bench", "latency", "--sample", "x=y"], "--sample names x, which is no source of these tables"),
        (["bench", "latency", "--sample", "nowhere"], "nowhere does not exist"),
        (["bench", "latency", "--rate", "0"], "is not a number of rows per second"),
        (["bench", "latency", "--record-bytes", "1,2"], "'1,2' is not a whole number"),
        (["bench", "scale", "--window", "0"], "'0' is not a number of seconds"),
        (["bench", "scale", "--points", "0"], "'0' is not a whole number"),
        (["bench", "scale", "--axis", "cores", "--points", "100000"], "and 100000 are asked for"),
        (["bench", "scale", "--axis", "cores", "--cores", "1"], "--cores and --axis cores contradict each other"),
        (["bench", "show", "headgate.yml"], "headgate.yml is not JSON"),
        (["bench", "show", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert expected in said(words, capsys, 2)


def test_sizes_of_records_that_have_no_text_are_refused_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = folder / "pipelines/sources/p/landed/sql-scripts"
    (scripts / "ddl.landed.sql").write_text("CREATE TABLE landed (id BIGINT, kind INT) USING json LOCATION 'landing';")
    monkeypatch.setattr(ephemeral_teardown, "end_abandoned", lambda environ, progress: pytest.fail("it began"))
    text = said(["bench", "latency", "--record-bytes", "500"], capsys, 2)
    assert "landed has no text column that can be filled up" in text and "this measures" not in text


def over(servers: str, option: str = "subscribe", topic: str = "orders", more: str = "") -> str:
    return f"USING kafka OPTIONS ('kafka.bootstrap.servers'='{servers}', {option}='{topic}'{more});"


def connected(folder: Path, landed: str, **sinks: str) -> None:
    """Replace the source and tables of a project by tables over topics or a database."""
    place = next(folder.glob("pipelines/*/p/landed/sql-scripts/ddl.landed.sql"))
    place.write_text(f"CREATE TABLE landed (id BIGINT, kind STRING) {landed}")
    for table, ddl in sinks.items():
        place = next(folder.glob(f"pipelines/*/*/{table}/sql-scripts/ddl.{table}.sql"))
        place.write_text(f"CREATE TABLE {table} (id BIGINT, kind STRING) {ddl}")
    manifest = folder / "headgate.yml"
    text = manifest.read_text().replace("    data: data\n", "    data: data\n    naming: {prefix: dev_}\n")
    manifest.write_text(f"{text}connectors: {{kafka: {{}}, postgres: {{}}}}\n")


def test_the_topics_that_are_created_are_said_first(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    connected(folder, over("b:9092"), b=over("b:9092,c:9092", "topic", "out"))
    asked = run(LATENCY)
    text = said(["bench", "latency"], capsys)
    assert "it creates topics at b:9092: it_*_orders, with as many partitions as those that they replace" in text
    assert "it creates topics at b:9092,c:9092: it_*_out, with" in text and "database" not in text
    (order,) = asked
    assert order.tables.topics == {"b:9092": ("orders",), "b:9092,c:9092": ("out",)}
    assert (order.tables.streamed, order.tables.stand_ins) == (("landed",), ())


def test_the_topics_of_copies_are_said_first(
    folder: Path, scaled: Callable[[BenchResult], list[ScaleOrder]], capsys: pytest.CaptureFixture[str]
) -> None:
    connected(folder, over("b:9092"), b=over("b:9092", "topic", "out"))
    scaled(SCALE)
    text = said(["bench", "scale", "b", "--points", "1,2"], capsys)
    assert "for each point, it creates topics at b:9092: it_*_orders, it_*_out, it_*_out_copy2, with" in text


def test_files_stand_for_a_database_and_everything_says_so(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "url 'jdbc:postgresql://127.0.0.1:1/none', user 'nobody', dbtable 'public.t', publication 'p'"
    connected(folder, f"USING postgres_changes OPTIONS ({options});")
    asked = run(replace(LATENCY, parameters={"stand_ins": ["landed"]}))
    text = said(["bench", "latency", "--svg", "l.svg"], capsys)
    assert "files stand for landed: no database is connected to or measured" in text
    assert "files in place of landed" in text and "files in place of landed" in (folder / "l.svg").read_text()
    (order,) = asked
    assert order.tables.stand_ins == ("landed",) and not order.tables.topics


def test_a_result_of_something_else_is_refused_with_its_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "x.json").write_text("{}")
    assert "x.json: it is not the result of a benchmark" in said(["bench", "show", "x.json"], capsys, 2)


def test_a_protected_environment_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "shop PROD protected is not benchmarked" in said(["bench", "latency", "--env", "prod"], capsys, 3)


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("CREATE TABLE landed (id BIGINT, kind STRING) USING orc LOCATION 'l'", "landed is a source in orc"),
        (
            "CREATE TABLE landed (id BIGINT, kind STRING) USING json OPTIONS ('timestampFormat'='yyyy') LOCATION 'l'",
            "landed has the option timestampformat",
        ),
        (
            "CREATE TABLE landed (id BIGINT, kind STRING) USING delta LOCATION 'l' "
            "TBLPROPERTIES ('delta.columnMapping.mode'='name')",
            "landed has the property delta.columnMapping.mode",
        ),
        (
            "CREATE TABLE landed (id BIGINT, kind STRING) USING kafka OPTIONS ('kafka.bootstrap.servers'='b:9092', "
            "subscribe='t', 'value.format'='avro', 'schema.registry'='http://r')",
            "a reads landed, whose messages are Avro",
        ),
        (
            "CREATE TABLE landed (id BIGINT) USING json LOCATION",
            "a reads landed, whose files are missing or have errors",
        ),
    ],
)
def test_sources_that_cannot_be_written_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], ddl: str, expected: str
) -> None:
    next(folder.glob("pipelines/*/p/landed/sql-scripts/ddl.landed.sql")).write_text(f"{ddl};")
    with open(folder / "headgate.yml", "a") as file:
        file.write("connectors: {delta: {}, kafka: {}}\n")
    assert expected in said(["bench", "throughput"], capsys, 3)
