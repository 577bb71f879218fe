"""Pairs of batches that have read the same input: chains, diamonds, empty batches, watermarks, generated histories."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.names import TableName
from core.observed.aligned_positions import (
    NOTHING,
    AlignedPair,
    BatchHistory,
    BatchPosition,
    Unaligned,
    Version,
    VersionHistory,
    newest_aligned,
)


def version(text: str) -> Version:
    """Read `orders@2`; without a number it is an external table."""
    name, _, number = text.partition("@")
    return TableName(name), int(number or 0)


def known(
    reads: str, batches: Mapping[int, str], held: Mapping[str, tuple[int, int]] | None = None, waters: str = ""
) -> VersionHistory:
    """Build a history: `reads` and each batch's marks are separated by spaces, as are the watermarks of the batches."""
    water = dict(zip(sorted(batches), map(int, waters.split()), strict=False))
    found = {batch: BatchPosition(tuple(marks.split()), water.get(batch, 0)) for batch, marks in batches.items()}
    return VersionHistory(tuple(map(version, reads.split())), BatchHistory(found, held or {}))


def aligned(histories: Mapping[str, VersionHistory], blue: str, green: str, **more: object) -> tuple[int, int] | str:
    found = newest_aligned(
        {version(name): history for name, history in histories.items()}, version(blue), version(green), **more  # type: ignore[arg-type]
    )  # fmt: skip
    return (found.blue, found.green) if isinstance(found, AlignedPair) else found.why


def test_the_newest_batches_with_the_same_marks_are_found() -> None:
    histories = {
        "a@1": known("raw", {3: "1:x", 4: "2:y", 5: "3:z"}),
        "a@2": known("raw", {0: "2:y", 1: "2:y"}),
    }
    assert aligned(histories, "a@1", "a@2") == (4, 1)


def test_without_a_common_position_it_says_how_far_both_have_read() -> None:
    histories = {"a@1": known("raw", {4: "12:y"}), "a@2": known("raw", {0: "9:x"})}
    assert aligned(histories, "a@1", "a@2") == "a@v1 has read 12 files or messages of raw, a@v2 9"
    assert aligned({"a@1": histories["a@1"]}, "a@1", "a@2") == "no batches are known of a@v2"
    apart = {"a@1": known("raw", {4: "1:y"}), "a@2": known("other", {0: "1:y"})}
    assert aligned(apart, "a@1", "a@2") == "a@v1 and a@v2 have no source in common"


def test_a_rebuilt_parent_counts_by_its_own_input() -> None:
    histories = {
        "a@1": known("raw", {7: "5:r5", 8: "6:r6", 9: "7:r7"}, {"70:b": (7, 7), "80:b": (8, 8), "90:b": (9, 9)}),
        "a@2": known("raw", {0: "5:r5", 1: "6:r6"}, {"1:g": (0, 0), "2:g": (1, 1)}),
        "b@1": known("a@1", {20: "70:b", 21: "80:b", 22: "90:b"}),
        "b@2": known("a@2", {3: "1:g", 4: "2:g"}),
    }
    assert aligned(histories, "b@1", "b@2") == (21, 4)
    assert aligned(histories, "b@1", "b@2", at={20}) == (20, 3)


def test_a_cut_within_a_batch_of_a_rebuilt_parent_is_no_position() -> None:
    histories = {
        "a@1": known("raw", {0: "1:r1"}, {"2:b": (0, 0)}),
        "a@2": known("raw", {0: "1:r1"}, {"2:g": (0, 0)}),
        "b@1": known("a@1", {0: "2:b"}),
        "b@2": known("a@2", {0: "1:half"}),
    }
    assert aligned(histories, "b@1", "b@2") == "it is unknown what b@v2 had read at its last batches"


def test_a_shared_parent_is_compared_unchanged() -> None:
    """Both versions read a@1, whatever a@1 itself has read."""
    histories = {
        "a@1": known("raw", {}, {}),
        "b@1": known("a@1", {0: "1:x", 1: "2:y"}),
        "b@2": known("a@1", {0: "2:y"}),
    }
    assert aligned(histories, "b@1", "b@2") == (1, 0)


def test_the_cut_of_a_seam_is_found_across_batches_that_wrote_nothing() -> None:
    """The reader drained a@1 up to its batch 2; batches 3 and 4 read more and wrote nothing."""
    histories = {
        "a@1": known("raw", {2: "3:r3", 3: "4:r4", 4: "5:r5"}, {"9:b": (2, 4)}),
        "a@2": known("raw", {0: "4:r4", 1: "6:r6"}, {"1:g": (0, 0), "2:g": (1, 1)}),
    }
    first, last = histories["a@1"].history.held["9:b"]
    assert aligned(histories, "a@1", "a@2", at=set(range(first, last + 1))) == (3, 0)


def test_two_paths_to_one_source_must_each_agree() -> None:
    sides = {"mid@1": known("raw", {0: "1:r1", 1: "2:r2"}, {"1:m": (0, 0), "2:m": (1, 1)})}
    sides["mid@2"] = known("raw", {0: "1:r1", 1: "2:r2"}, {"1:n": (0, 0), "2:n": (1, 1)})
    # The newest batch of blue has read more of mid than that of green, and equally much of raw.
    sides["top@1"] = known("mid@1 raw", {4: "1:m 2:r2", 5: "2:m 2:r2"})
    sides["top@2"] = known("mid@2 raw", {0: "1:n 2:r2"})
    assert aligned(sides, "top@1", "top@2") == (4, 0)


def test_a_table_that_is_read_twice_has_two_positions() -> None:
    histories = {
        "a@1": known("raw raw", {0: "1:x 2:y", 1: "2:y 2:y"}),
        "a@2": known("raw raw", {0: "2:y 1:x", 1: "1:x 2:y"}),
    }
    assert aligned(histories, "a@1", "a@2") == (0, 1)


def test_a_source_of_one_side_alone_is_not_compared() -> None:
    histories = {"a@1": known("raw", {4: "2:y"}), "a@2": known("raw extra", {0: "1:x 9:e", 1: "2:y 7:e"})}
    assert aligned(histories, "a@1", "a@2") == (4, 1)


def test_another_way_to_the_same_source_is_compared_where_it_is_the_only_one() -> None:
    histories = {
        "between@1": known("raw", {0: "1:x", 1: "2:y"}, {"1:m": (0, 0), "2:m": (1, 1)}),
        "a@1": known("raw", {4: "2:y"}),
        "a@2": known("between@1", {0: "1:m", 1: "2:m"}),
    }
    assert aligned(histories, "a@1", "a@2") == (4, 1)


def test_watermarks_must_agree_only_where_it_is_strict() -> None:
    histories = {
        "a@1": known("raw", {4: "2:y", 5: "2:y"}, waters="50 60"),
        "a@2": known("raw", {0: "2:y", 1: "3:z"}, waters="0 60"),
    }
    strict = newest_aligned({version(n): h for n, h in histories.items()}, version("a@1"), version("a@2"))
    assert strict == Unaligned("a@v1 has read 2 files or messages of raw, a@v2 3")
    loose = newest_aligned({version(n): h for n, h in histories.items()}, version("a@1"), version("a@2"), strict=False)
    assert loose == AlignedPair(5, 0, 60, 0, same_watermarks=False)


def test_a_watermark_of_a_rebuilt_parent_counts_too() -> None:
    histories = {
        "a@1": known("raw", {0: "1:r", 1: "1:r"}, {"1:b": (0, 0), "2:b": (1, 1)}, waters="0 60"),
        "a@2": known("raw", {0: "1:r"}, {"1:g": (0, 0)}, waters="0"),
        "b@1": known("a@1", {0: "1:b", 1: "2:b"}),
        "b@2": known("a@2", {0: "1:g"}),
    }
    assert aligned(histories, "b@1", "b@2") == (0, 0)
    assert aligned(histories, "b@1", "b@2", strict=False) == (1, 0)


def test_versions_that_have_read_nothing_at_all_are_aligned_before_their_first_batch() -> None:
    nothing = {"a@1": known("raw", {}), "a@2": known("raw", {})}
    assert aligned(nothing, "a@1", "a@2") == (-1, -1)
    assert aligned({**nothing, "a@2": known("raw", {0: "1:x"})}, "a@1", "a@2") != (-1, -1)


def test_a_reader_of_nothing_is_a_position_before_the_first_batch_of_its_parent() -> None:
    histories = {
        "a@1": known("raw", {0: "1:r1"}, {"1:b": (0, 0)}),
        "a@2": known("raw", {0: "1:r1"}, {"1:g": (0, 0)}),
        "b@1": known("a@1 raw", {0: f"{NOTHING} 1:r1"}),
        "b@2": known("a@2 raw", {0: f"{NOTHING} 1:r1"}),
    }
    assert aligned(histories, "b@1", "b@2") == (0, 0)


def test_a_reader_of_nothing_may_stand_before_batches_of_its_parent_that_wrote_nothing() -> None:
    histories = {
        "a@1": known("raw", {0: "1:r1"}, {NOTHING: (0, 0)}),
        "a@2": known("raw", {}),
        "b@1": known("a@1", {0: NOTHING}),
        "b@2": known("a@2", {0: NOTHING}),
    }
    assert aligned(histories, "b@1", "b@2") == (0, 0)


@dataclass
class SimulatedVersion:
    """A version that keeps every third row of its parent or source, and records the rows at each batch."""

    name: Version
    parent: "SimulatedVersion | None"
    third: int
    rows: list[tuple[int, ...]] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    """By batch: the number of rows of the source, or of batches of the parent, that had been read by then."""

    def batch(self, upto: int) -> None:
        there = tuple(range(upto)) if self.parent is None else self.parent.rows[upto - 1] if upto else ()
        self.read.append(upto)
        self.rows.append(tuple(row for row in there if row % 3 != self.third))

    def mark(self, batch: int) -> str:
        """Return the mark of a reader at `batch`, counted in files: one per batch that wrote something."""
        before = [(), *self.rows[: batch + 1]]
        files = sum(len(now) > len(was) for was, now in itertools.pairwise(before))
        return f"{files}:{self.name[1]}{self.name[0]}" if files else NOTHING

    def history(self, kept: int) -> VersionHistory:
        source = self.parent.name if self.parent else (TableName("raw"), 0)
        marks = [
            (self.parent.mark(upto - 1) if upto else NOTHING) if self.parent else (f"{upto}:raw" if upto else NOTHING)
            for upto in self.read
        ]
        held: dict[str, tuple[int, int]] = {}
        for batch in range(len(self.rows)):
            held[self.mark(batch)] = (held.get(self.mark(batch), (batch, 0))[0], batch)
        batches = {n: BatchPosition((mark,)) for n, mark in enumerate(marks) if n >= len(marks) - kept}
        return VersionHistory((source,), BatchHistory(batches, held))

    def root(self, batch: int) -> tuple[int, ...]:
        """Return how far the chain's source had been read at a batch."""
        if batch < 0:
            return (0,)
        return (*self.parent.root(self.read[batch] - 1),) if self.parent else (self.read[batch],)


@given(
    st.lists(st.tuples(st.sampled_from(("row", "b0", "b1", "g0", "g1")), st.booleans()), max_size=60),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 20),
)
@pytest.mark.generated
def test_in_generated_histories_a_pair_has_the_same_rows_and_none_newer_is_missed(
    acts: list[tuple[str, bool]], thirds: tuple[int, int], kept: int
) -> None:
    top = {"b0": SimulatedVersion((TableName("a"), 1), None, thirds[0])}
    top["g0"] = SimulatedVersion((TableName("a"), 2), None, thirds[0])
    top["b1"] = SimulatedVersion((TableName("b"), 1), top["b0"], thirds[1])
    top["g1"] = SimulatedVersion((TableName("b"), 2), top["g0"], thirds[1])
    rows = 0
    for act, _ in acts:
        if act == "row":
            rows += 1
        else:
            of = top[act]
            of.batch(rows if of.parent is None else len(of.parent.rows))
    histories = {found.name: found.history(kept) for found in top.values()}
    for blue, green in ((top["b0"], top["g0"]), (top["b1"], top["g1"])):
        found = newest_aligned(histories, blue.name, green.name)
        same = [
            (b, g)
            for b in histories[blue.name].history.batches
            for g in histories[green.name].history.batches
            if blue.root(b) == green.root(g) and _is_remembered(blue, b, kept) and _is_remembered(green, g, kept)
        ]
        if isinstance(found, AlignedPair):
            if found.blue >= 0:
                assert blue.rows[found.blue] == green.rows[found.green]
            assert not same or (found.blue, found.green) >= max(same)
        else:
            assert not same


def _is_remembered(of: SimulatedVersion, batch: int, kept: int) -> bool:
    """Return whether the parent's batch that was read is still known."""
    parent = of.parent
    return parent is None or of.read[batch] == 0 or of.read[batch] - 1 >= len(parent.rows) - kept
