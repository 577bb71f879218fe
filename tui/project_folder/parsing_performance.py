"""What makes a first load of many statements fast: two parsing processes, and a garbage collector that runs rarely.

Each statement takes a parser a millisecond, and one process alone would leave a core idle: with two, the busier takes
0.72 of the CPU time of one alone for a first plan of 3,000 tables, 0.74 for 1,000. With rare collection a plan of
10,000 tables takes 0.83 of its CPU time, one of 3,000 takes 0.91 (`tests/bench/speed_tricks.py`).
"""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from core.project_files.parse_cache import ParseCache
from tui.project_folder.manifest_head import PROJECT_FILE

_SELDOM = (200_000, 20, 1_000)
"""Thresholds of the garbage collector, which walks a project's values again and again with the usual ones."""


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect seldom meanwhile; for commands, which have one thread and end soon."""
    usual = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


MANY = 600
"""Unknown statements from which a second process, which starts in some 0.4 s, saves more than it takes."""

SHARE = 0.42
"""Part of the statements that the second process reads."""

Text = tuple[str, str]
"""A path and what stands in the file."""


def parse_in_two_processes(texts: Mapping[str, str], facts: ParseCache) -> None:
    """Fill `facts` with the statements of a project's texts, half of them in another process.

    Does nothing for few of them, on one core, or where no process can be started: they are read one by one then.
    """
    if len(texts) < MANY or (os.cpu_count() or 1) < 2:
        return
    from core.project_files.manifest import read_manifest

    streams = read_manifest(texts.get(PROJECT_FILE), []).defaults.every_table_streams
    unknown = [
        (path, text)
        for path, text in texts.items()
        if path.rpartition("/")[2].startswith("dml.") and not facts.has_statements(text, every_table_streams=streams)
    ]
    if len(unknown) < MANY:
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    cut = round(len(unknown) * (1 - SHARE))
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            elsewhere = pool.submit(_read, unknown[cut:], streams)
            for path, text in unknown[:cut]:
                facts.statements(text, path, every_table_streams=streams)
            facts.add(elsewhere.result())
    except (OSError, BrokenProcessPool):
        return


def _read(texts: Sequence[Text], streams: bool) -> dict[bytes, str]:
    facts = ParseCache()
    for path, text in texts:
        facts.statements(text, path, every_table_streams=streams)
    return facts.take_fresh()
