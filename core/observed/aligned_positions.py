"""Aligned positions: the latest batches of two versions after which both had read exactly the same input.

By the end of a batch, a version has read a definite set of rows from each streamed source. A mark such as `12:9f3a…`,
for 12 files, identifies that set, so equal marks mean equal rows. If only one of the two versions reads a source and
the batches of the source are known, the source's own inputs are compared instead. This is repeated until all sources
are shared or external.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from core.model.names import TableName, query_name

Version = tuple[TableName, int]
"""A table and its version number; version 0 is an external table."""

SourcePath = tuple[str, ...]
"""Table names on the path from a version up to a root source; a second stream of a table is numbered: `orders#2`."""

NOTHING = "0:0"
"""The mark of a source before the first batch."""

ALTERNATIVES = 256
"""Maximum number of positions considered for one batch; each batch that writes no rows adds a possible position."""


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """The input that a version had read by the end of a batch."""

    consumed: tuple[str, ...]
    """A mark for each source, in the order of the SQL text."""
    watermark_ms: int = 0
    """Watermark of the batch in epoch milliseconds; 0 if the batch has no watermark."""


@dataclass(frozen=True, slots=True)
class BatchHistory:
    """The batches of a version that are still recorded in its checkpoint and table."""

    batches: Mapping[int, BatchPosition]
    held: Mapping[str, tuple[int, int]]
    """For each mark of a reader, the first and the last batch after which the table held exactly the marked rows."""


@dataclass(frozen=True, slots=True)
class VersionHistory:
    """The recorded batches of a version, and the upstream versions from which it streams."""

    sources: tuple[Version, ...]
    history: BatchHistory


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """A batch of each version, `blue` and `green`, after which both had read the same input; -1 means no batch yet."""

    blue: int
    green: int
    blue_watermark_ms: int = 0
    green_watermark_ms: int = 0
    same_watermarks: bool = True
    """Whether both versions, and the upstream versions that only one of them reads, had reached the same watermarks.

    If so, both versions withhold the same rows.
    """


@dataclass(frozen=True, slots=True)
class Unaligned:
    """Why there is no pair of batches after which two versions had read the same input."""

    why: str
    final: bool = False
    """Whether it is certain that later batches will not align either."""
    incomparable: bool = False
    """Whether no two versions of the table have comparable rows, whatever they have read."""


Histories = Mapping[Version, VersionHistory]


def newest_aligned(
    histories: Histories,
    blue: Version,
    green: Version,
    *,
    at: Collection[int] | None = None,
    strict: bool = True,
    name: Callable[[TableName, int], str] = query_name,
) -> AlignedPair | Unaligned:
    """Return the latest pair of batches after which two versions had read the same input.

    `histories` contains both versions and, as far as they are known, all versions upstream of them. `at` restricts the
    search to these batches of `blue`. `strict` also requires equal watermarks. A source that only one of the two
    versions reads is not compared. `name` gives the name of a version in the reason.
    """
    missing = next((version for version in (blue, green) if version not in histories), None)
    if missing is not None:
        return Unaligned(f"no batches are known of {name(*missing)}")
    shared = _above(histories, blue) & _above(histories, green)
    blues, greens = _Side(histories, shared, blue), _Side(histories, shared, green)
    if not blues.batches and not greens.batches and at is None:
        return AlignedPair(-1, -1)
    pairs = _comparable(blues.paths, greens.paths)
    if not pairs:
        return Unaligned(f"{name(*blue)} and {name(*green)} have no source in common", final=True)
    waters = [(path, path) for path in sorted(blues.waters & greens.waters)]
    chosen = blues.batches if at is None else [batch for batch in blues.batches if batch in at]
    newest: dict[tuple[str, ...], int] = {}
    for batch in chosen:
        for position in blues.positions(batch):
            newest.setdefault(_projected(position, 0, (*pairs, *waters) if strict else pairs), batch)
    best: tuple[int, int] | None = None
    for batch in greens.batches:
        for position in greens.positions(batch):
            found = newest.get(_projected(position, 1, (*pairs, *waters) if strict else pairs), -1)
            if found >= 0 and (best is None or (found, batch) > best):
                best = found, batch
    if best is None:
        return Unaligned(_why((blues, greens), pairs, chosen, (name(*blue), name(*green))))
    return _pair(blues, greens, best, waters)


@dataclass(frozen=True, slots=True)
class _Position:
    marks: Mapping[SourcePath, str]
    waters: Mapping[SourcePath, str]


class _Side:
    """One of the two compared versions, with its sources traced upstream to the sources that are compared."""

    def __init__(self, histories: Histories, shared: frozenset[Version], version: Version) -> None:
        self._histories, self._shared = histories, shared
        self._known: dict[tuple[Version, int], tuple[_Position, ...]] = {}
        self.version = version
        self.batches = sorted(histories[version].history.batches, reverse=True)
        """Batch numbers, latest first."""
        self.paths = dict(self._roots(version, ()))
        self.waters = frozenset(self._waters(version, ()))

    def positions(self, batch: int) -> tuple[_Position, ...]:
        """Return the version's possible positions at the end of a batch; empty if they are no longer known."""
        return self._positions(self.version, batch)

    def expands(self, version: Version) -> bool:
        """True if the comparison replaces a source version by that version's own inputs."""
        return version not in self._shared and version in self._histories

    def _roots(self, version: Version, path: SourcePath) -> Iterator[tuple[SourcePath, Version]]:
        for name, source in _named(self._histories[version].sources):
            if self.expands(source):
                yield from self._roots(source, (*path, name))
            else:
                yield (*path, name), source

    def _waters(self, version: Version, path: SourcePath) -> Iterator[SourcePath]:
        yield path
        for name, source in _named(self._histories[version].sources):
            if self.expands(source):
                yield from self._waters(source, (*path, name))

    def _positions(self, version: Version, batch: int) -> tuple[_Position, ...]:
        key = (version, batch)
        if key not in self._known:
            self._known[key] = tuple(self._found(version, batch))
        return self._known[key]

    def _found(self, version: Version, batch: int) -> Iterator[_Position]:
        """Yield at most `ALTERNATIVES` possible positions of a version at the end of a batch.

        A negative batch means that the version has not read anything yet.
        """
        known = self._histories[version]
        at = known.history.batches.get(batch)
        if at is None and batch < 0:
            at = BatchPosition((NOTHING,) * len(known.sources))
        if at is None or len(at.consumed) < len(known.sources):
            return
        each = [
            self._of_source(name, source, mark)
            for (name, source), mark in zip(_named(known.sources), at.consumed, strict=False)
        ]
        for count, combined in enumerate(product(*each)):
            if count >= ALTERNATIVES:
                return
            marks = {path: mark for one in combined for path, mark in one.marks.items()}
            waters = {path: water for one in combined for path, water in one.waters.items()}
            yield _Position(marks, {**waters, (): str(at.watermark_ms)})

    def _of_source(self, name: str, source: Version, mark: str) -> list[_Position]:
        if not self.expands(source):
            return [_Position({(name,): mark}, {})]
        held = self._histories[source].history.held
        first, last = held.get(mark, (0, -1))
        if mark == NOTHING:
            first, last = -1, max(last, -1)
        above = [one for batch in range(last, first - 1, -1) for one in self._positions(source, batch)]
        return [
            _Position(
                {(name, *path): found for path, found in one.marks.items()},
                {(name, *path): found for path, found in one.waters.items()},
            )
            for one in above[:ALTERNATIVES]
        ]


def _above(histories: Histories, version: Version) -> frozenset[Version]:
    found: set[Version] = set()
    open_ = [version]
    while open_:
        known = histories.get(open_.pop())
        fresh = [source for source in known.sources if source not in found] if known else []
        found.update(fresh)
        open_ += fresh
    return frozenset(found)


def _named(sources: tuple[Version, ...]) -> Iterator[tuple[str, Version]]:
    """Yield each source with a unique name: `orders`, then `orders#2` for the second stream of the same table."""
    seen: dict[TableName, int] = {}
    for source in sources:
        table = source[0]
        seen[table] = seen.get(table, 0) + 1
        yield (f"{table}#{seen[table]}" if seen[table] > 1 else str(table)), source


def _comparable(
    blue: Mapping[SourcePath, Version], green: Mapping[SourcePath, Version]
) -> tuple[tuple[SourcePath, SourcePath], ...]:
    """Pair each source path of a version with a path of the other version that leads to the same root source.

    Equal paths are paired first. Other paths to a root are paired only if exactly one remains for each version.
    """
    same = [path for path, root in blue.items() if green.get(path) == root]
    pairs = [(path, path) for path in same]
    for path, root in blue.items():
        others = [other for other, of in green.items() if of == root and other not in same]
        mine = [other for other, of in blue.items() if of == root and other not in same]
        if path not in same and len(others) == 1 and len(mine) == 1:
            pairs.append((path, others[0]))
    return tuple(sorted(pairs))


def _projected(position: _Position, side: int, pairs: Collection[tuple[SourcePath, SourcePath]]) -> tuple[str, ...]:
    marks, waters = position.marks, position.waters
    return tuple(marks[pair[side]] if pair[side] in marks else waters.get(pair[side], "") for pair in pairs)


def _pair(
    blues: _Side, greens: _Side, best: tuple[int, int], waters: Collection[tuple[SourcePath, SourcePath]]
) -> AlignedPair:
    blue, green = best
    one, other = (side.positions(batch) for side, batch in ((blues, blue), (greens, green)))
    there = {_projected(_Position({}, position.waters), 0, waters) for position in one}
    here = {_projected(_Position({}, position.waters), 1, waters) for position in other}
    own = [int(side[0].waters[()]) for side in (one, other)]
    return AlignedPair(blue, green, own[0], own[1], bool(there & here))


def _why(
    sides: tuple[_Side, _Side],
    pairs: tuple[tuple[SourcePath, SourcePath], ...],
    chosen: Collection[int],
    names: tuple[str, str],
) -> str:
    blues, greens = sides
    ends = [next((found for batch in side for found in of.positions(batch)), None) for side, of in (
        (sorted(chosen, reverse=True), blues), (greens.batches, greens))]  # fmt: skip
    for end, name in zip(ends, names, strict=True):
        if end is None:
            return f"it is unknown what {name} had read at its last batches"
    first, second = ends
    apart = [
        f"{names[0]} has read {theirs.partition(':')[0]} files or messages of {path[-1]}, "
        f"{names[1]} {ours.partition(':')[0]}"
        for path, other in pairs
        if first and second and (theirs := first.marks[path]) != (ours := second.marks[other])
    ]
    return "; ".join(apart) or f"{names[0]} and {names[1]} have not reached the same watermark at the same rows"
