"""Command line of the demo (`python -I -m pipelines.demo …`): prints the result, or {"error": …}, as a JSON object."""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from core.model.errors import HeadgateError, InvalidProject, UsageError
from core.model.table_formats import WRITTEN
from pipelines.demo.data_folder import DemoDataFolder, lock_holder, open_folder
from pipelines.demo.event_generator import (
    FREE_BYTES_MIN,
    HOURS_MAX,
    ROUNDS,
    Bursts,
    Feeds,
    GeneratorLimits,
    feeds_from_json,
    generate,
    how_many_rounds,
    stop_feeds,
    write_closing_events,
    write_pending_events,
)
from pipelines.demo.sample_changes import CHANGES, change_project
from pipelines.demo.sample_copy import SampleCopy, copy_sample
from pipelines.whole_files import read_object


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy="see python -I -m pipelines.demo --help")


class _WallClock:
    """The system clock for the event generator. SIGTERM and SIGINT ask the generator to stop."""

    def __init__(self) -> None:
        self._end = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end.set())

    def now(self) -> float:
        return time.time()

    def wait(self, seconds: float) -> bool:
        return self._end.wait(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Perform the action given by the command-line arguments, and return the exit code."""
    try:
        print(json.dumps(_do(_parser().parse_args(arguments))))
        return 0
    except HeadgateError as error:
        print(json.dumps({"error": error.as_json()}))
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -I -m pipelines.demo", description=__doc__)
    act = parser.add_mutually_exclusive_group()
    act.add_argument("--copy", metavar="DEST", help="copy the sample project, or find the copy that is there")
    act.add_argument("--change", choices=sorted(CHANGES), help="edit one statement of --project")
    act.add_argument("--settle", action="store_true", help="stop the feeds of --data and land closing events")
    act.add_argument("--stop", action="store_true", help="stop the generator of --data, if one is running")
    act.add_argument("--status", action="store_true", help="print what the generator of --data is doing, or did last")
    act.add_argument("--start-servers", action="store_true", help="start the servers of the scenario in --project")
    act.add_argument("--end-servers", action="store_true", help="end the servers of the scenario in --project")
    act.add_argument("--measure", type=int, metavar="N", help="measure --project while N transactions are committed")
    act.add_argument("--work", action="store_true", help="change the database of the scenario in --project")
    parser.add_argument("--scenario", type=int, help="with --copy: the scenario to copy")
    parser.add_argument("--format", choices=WRITTEN, default="", help="with --copy: how its tables are stored")
    parser.add_argument("--data", metavar="DIR", help="data folder to land events in")
    parser.add_argument("--store", metavar="URI", default="", help="the data folder in HDFS, if events land there")
    parser.add_argument("--project", metavar="DIR", help="project folder")
    parser.add_argument("--with-readers", action="store_true", help="with --change rename: edit the readers too")
    parser.add_argument("--rounds", type=int, help="with --settle; by default as many as --project needs")
    parser.add_argument("--rate", type=float, help="orders per second; by default feeds.json stays unchanged")
    parser.add_argument("--no-bursts", action="store_true", help="with --rate: a constant rate")
    parser.add_argument("--seed", type=int, default=7, help="seed that determines all events")
    parser.add_argument("--hours", type=float, default=HOURS_MAX, help="stop after this many hours")
    parser.add_argument("--min-free-bytes", type=int, default=FREE_BYTES_MIN, help="stop when less disk space is free")
    return parser


def _do(given: argparse.Namespace) -> dict[str, Any]:
    if given.copy is not None:
        copy = copy_sample(given.copy, given.format) if given.scenario is None else _copy_scenario(given)
        return {"folder": str(copy.folder), "data": str(copy.data), "project_id": copy.project_id, "made": copy.made}
    if given.change is not None:
        return _change(given)
    if given.start_servers or given.end_servers:
        return _servers(given)
    if given.data is None:
        raise UsageError("no data folder is given", remedy="add --data DIR")
    if given.status:
        folder = DemoDataFolder(Path(given.data).expanduser().absolute())
        return {"pid_alive": lock_holder(folder), "last": read_object(folder.status)}
    if given.stop:
        return {"stopped": stop_feeds(DemoDataFolder(Path(given.data).expanduser().absolute()))}
    if given.work or given.measure is not None:
        return _measure(given) if given.measure is not None else _work(given)
    return _settle(given) if given.settle else _generate(given)


def _say(text: str) -> None:
    """Print a progress message, as a JSON object on a separate line before the result."""
    print(json.dumps({"waiting": text}), flush=True)


def _project(given: argparse.Namespace) -> Path:
    if given.project is None:
        raise UsageError("no project folder is given", remedy="add --project DIR")
    return Path(given.project).expanduser().absolute()


# The imports below are local, so that the event generator of the sample without a database does not load the scenarios.


def _copy_scenario(given: argparse.Namespace) -> SampleCopy:
    from pipelines.demo.scenarios import copy_scenario

    return copy_scenario(given.copy, given.scenario)


def _servers(given: argparse.Namespace) -> dict[str, Any]:
    from pipelines.demo.scenarios import end_scenario, start_scenario

    if given.end_servers:
        return {"ended": end_scenario(_project(given))}
    return {"started": start_scenario(_project(given), _say)}


def _work(given: argparse.Namespace) -> dict[str, Any]:
    from pipelines.demo.restaurant import work
    from pipelines.demo.scenarios import shift_of

    shift = shift_of(_project(given), rate=given.rate, seed=given.seed)
    folder = DemoDataFolder(Path(given.data).expanduser().absolute())
    return work(folder, _WallClock(), shift, lambda transaction, identity, restaurant: None)


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    from pipelines.demo.comparison import measure

    data = DemoDataFolder(Path(given.data).expanduser().absolute())
    pace = {"transactions": given.measure, "rate": given.rate or 4.0, "seed": given.seed}
    return measure(_project(given), data, _WallClock(), _say, **pace)


def _change(given: argparse.Namespace) -> dict[str, Any]:
    change, written = change_project(_project(given), given.change, with_readers=given.with_readers)
    return {"change": given.change, "table": change.table, "expected": change.expected,
            "already_made": not written, "written": list(written)}  # fmt: skip


def _generate(given: argparse.Namespace) -> dict[str, Any]:
    folder = open_folder(given.data, given.store)
    return generate(
        folder,
        _WallClock(),
        feeds=_feeds(given, read_object(folder.control)),
        seed=given.seed,
        limits=GeneratorLimits(given.hours, given.min_free_bytes),
    )


def _feeds(given: argparse.Namespace, before: dict[str, Any] | None) -> Feeds | None:
    """Return the feed settings from `--rate` and `--no-bursts`, or None if neither option is used.

    New settings resume paused feeds. Without `--rate`, the rate in the previous settings, `before`, is kept.
    """
    if given.rate is None and not given.no_bursts:
        return None
    rate = given.rate if given.rate is not None else (before or {}).get("rate", Feeds().rate)
    bursts = None if given.no_bursts else Bursts()
    try:
        return feeds_from_json(Feeds(rate, False, bursts).as_json())
    except (ValueError, TypeError) as error:
        raise UsageError(f"{given.rate} is not a valid rate for the feeds: {error}", remedy="add --rate 8") from error


def _settle(given: argparse.Namespace) -> dict[str, Any]:
    folder = open_folder(given.data, given.store)
    rounds = given.rounds or _rounds(given.project)
    stop_feeds(folder)
    rest = write_pending_events(folder)
    landed = [write_closing_events(folder) for _ in range(rounds)]
    return {"rest": rest, "rounds": [asdict(one) for one in landed],
            "closed_when_watermark_reaches": landed[0].closed_when_watermark_reaches}  # fmt: skip


def _rounds(project: str | None) -> int:
    if project is None:
        return ROUNDS
    from core.project_reader.loader import (
        read_project,  # Imported here, so that the generator does not keep the SQL parser in memory for two hours.
    )

    root = Path(project).expanduser()
    paths = [root / "headgate.yml", *root.glob("pipelines/**/*.sql"), *root.glob("pipelines/**/*.yml")]
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in paths if path.is_file()}
    declared, problems = read_project(texts)
    if declared is None:
        raise InvalidProject(
            f"{root} has problems", remedy="see headgate doctor", problems=tuple(p.as_json() for p in problems)
        )
    return how_many_rounds(declared)


if __name__ == "__main__":
    sys.exit(main())
