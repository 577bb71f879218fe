"""A first load of many statements with two processes: each takes a parser a millisecond, and one core is left idle."""

import os
from collections.abc import Mapping, Sequence

from core.facts import Facts
from tui.operations.environments import PROJECT_FILE

MANY = 600
"""Unknown statements from which a second process, which starts in some 0.4 s, saves more than it takes."""

SHARE = 0.42
"""Part of the statements that the second process reads."""

Text = tuple[str, str]
"""A path and what stands in the file."""


def read_ahead(texts: Mapping[str, str], facts: Facts) -> None:
    """Fill `facts` with the statements of a project's texts, half of them in another process.

    Does nothing for few of them, on one core, or where no process can be started: they are read one by one then.
    """
    if len(texts) < MANY or (os.cpu_count() or 1) < 2:
        return
    from core.layouts.manifest import read_manifest

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
    facts = Facts()
    for path, text in texts:
        facts.statements(text, path, every_table_streams=streams)
    return facts.take_fresh()
