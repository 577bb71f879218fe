"""Inputs in topics: messages that were written together, and the batch of a reader that has read the last of them.

Spark's offsets say how far each partition was read, so an input is known by the offsets at which it ends.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Partition = tuple[str, int]
"""Topic and number of a partition."""

Ends = Mapping[Partition, int]
"""Offset after the last message of each partition."""


@dataclass(slots=True)
class TopicInputs:
    """The inputs of all topics, in the order in which they were written."""

    sinks: Collection[str] = ()
    """Topics that statements write."""
    every: list[tuple[str, Ends]] = field(default_factory=list)
    """Each input with its ends, in the partitions that have messages of it."""
    _known: dict[Partition, int] = field(default_factory=dict)

    def add(self, input: str, ends: Ends) -> Ends:
        """Add an input of the messages before `ends` that belong to no earlier one, if there are any.

        Returns its ends, in the partitions that have messages of it.
        """
        moved = {each: end for each, end in ends.items() if end > self._known.get(each, 0)}
        self._known.update(moved)
        if moved:
            self.every.append((input, moved))
        return moved

    def unknown(self, offsets: Ends) -> bool:
        """True if messages before these offsets are of a batch that is not added yet, because it still runs."""
        return any(each[0] in self.sinks and end > self._known.get(each, 0) for each, end in offsets.items())


@dataclass(slots=True)
class TopicReading:
    """The inputs that a statement has not read yet from one of its sources."""

    inputs: TopicInputs
    _seen: int = 0
    _left: list[tuple[str, Ends]] = field(default_factory=list)

    def read(self, offsets: Ends) -> frozenset[str]:
        """Return the inputs that end before these offsets and did not end before those of the call before."""
        topics = {topic for topic, _ in offsets}
        self._left += [each for each in self.inputs.every[self._seen :] if any(at[0] in topics for at in each[1])]
        self._seen = len(self.inputs.every)
        done = frozenset(name for name, ends in self._left if all(offsets.get(at, 0) >= ends[at] for at in ends))
        self._left = [each for each in self._left if each[0] not in done]
        return done
