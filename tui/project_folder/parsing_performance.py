"""Speeds up the first load of many statements: two processes parse, and garbage is rarely collected.

Parsing takes a millisecond per statement and would leave a core idle. With two processes, the busier one needs 0.72 of
the CPU time of a single process for a first plan of 3,000 tables, and 0.74 for 1,000. With rare garbage collection, a
plan of 10,000 tables needs 0.83 of its CPU time, and one of 3,000 needs 0.91 (`tests/bench/speed_tricks.py`).
"""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core.project_reader.parse_cache import ParseCache
from tui.project_folder.manifest_head_cache import PROJECT_FILE

if TYPE_CHECKING:
    from core.project_reader.parse_cache import Reading

_SELDOM = (200_000, 20, 1_000)
"""Thresholds of the garbage collector.

With the default thresholds, it traverses a project's values repeatedly.
"""


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely within the block. Suitable for commands, which have one thread and end soon."""
    usual = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


MANY = 600
"""Minimum number of statements for which a second process saves time, although it takes 0.4 s to start."""

SHARE = 0.42
"""Share of the statements for the second process, which also parses all DDL (a tenth of the time)."""

Text = tuple[str, str]
"""Path and content of a file."""


def parse_in_two_processes(texts: Mapping[str, str], parse_cache: ParseCache, environment: str) -> None:
    """Parse a project's scripts for an environment in two processes, and add the results to `parse_cache`.

    Does nothing for few scripts, on a single core, or if no process can be started. The scripts are then parsed when
    they are needed.
    """
    if len(texts) < MANY or (os.cpu_count() or 1) < 2:
        return
    from core.project_reader.loader import with_values
    from core.project_reader.manifest import read_manifest

    manifest = read_manifest(texts.get(PROJECT_FILE), [])
    streams = manifest.defaults.every_table_streams
    statements, ddl = [], []
    for path, text in with_values(texts, manifest.variables_of(environment)).items():
        name = path.rpartition("/")[2]
        if name.startswith("dml.") and not parse_cache.has_statements(text, every_table_streams=streams):
            statements.append((path, text))
        elif name.startswith("ddl.") and not parse_cache.has_ddl(text):
            ddl.append((path, text))
    if len(statements) < MANY:
        return
    cut = round(len(statements) * (1 - SHARE))

    def own() -> None:
        for path, text in statements[:cut]:
            parse_cache.statements(text, path, every_table_streams=streams)

    _in_two_processes(parse_cache, own, _read, *(statements[cut:], ddl, streams))


def read_columns_in_two_processes(unknown: "Sequence[Reading]", parse_cache: ParseCache) -> None:
    """Find the columns that statements read, in two processes, and add them to `parse_cache`.

    Does nothing in the same cases as `parse_in_two_processes`.
    """
    if len(unknown) < MANY or (os.cpu_count() or 1) < 2:
        return
    cut = round(len(unknown) * (1 - SHARE))

    def own() -> None:
        for parsed, columns in unknown[:cut]:
            parse_cache.wrong_columns(parsed, columns)

    _in_two_processes(parse_cache, own, _read_columns, unknown[cut:])


def _in_two_processes(
    parse_cache: ParseCache, own: Callable[[], None], read: Callable[..., dict[bytes, str]], *given: object
) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            elsewhere = pool.submit(read, *given)
            own()
            parse_cache.add(elsewhere.result())
    except (OSError, BrokenProcessPool):
        return


def _read(statements: Sequence[Text], ddl: Sequence[Text], streams: bool) -> dict[bytes, str]:
    parse_cache = ParseCache()
    with rare_garbage_collection():
        for path, text in statements:
            parse_cache.statements(text, path, every_table_streams=streams)
        for path, text in ddl:
            parse_cache.ddl(text, path)
    return parse_cache.take_fresh()


def _read_columns(readings: "Sequence[Reading]") -> dict[bytes, str]:
    parse_cache = ParseCache()
    with rare_garbage_collection():
        for parsed, columns in readings:
            parse_cache.wrong_columns(parsed, columns)
    return parse_cache.take_fresh()
