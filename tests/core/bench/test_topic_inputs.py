"""Inputs in topics are read by the batch that reads the last of their messages."""

from core.bench.topic_inputs import TopicInputs, TopicReading

A, B, OUT = ("a", 0), ("a", 1), ("out", 0)


def test_an_input_is_read_with_the_last_of_its_messages() -> None:
    inputs = TopicInputs()
    reading = TopicReading(inputs)
    assert inputs.add("one", {A: 5, B: 3}) == {A: 5, B: 3}
    assert inputs.add("two", {A: 9, B: 3}) == {A: 9}
    assert reading.read({A: 5, B: 2}) == frozenset()
    assert reading.read({A: 9, B: 2}) == {"two"}, "the partitions of a topic are not read equally fast"
    inputs.add("three", {A: 9, B: 4})
    assert reading.read({A: 9, B: 4}) == {"one", "three"}
    assert reading.read({A: 9, B: 4}) == frozenset()


def test_nothing_is_an_input_without_messages_and_others_topics_are_no_matter() -> None:
    inputs = TopicInputs()
    reading = TopicReading(inputs)
    inputs.add("one", {A: 5})
    assert inputs.add("two", {A: 5}) == {} and len(inputs.every) == 1
    inputs.add("other", {OUT: 7})
    assert reading.read({A: 7}) == {"one"}


def test_messages_of_a_batch_that_still_runs_are_unknown() -> None:
    inputs = TopicInputs(sinks={"out"})
    assert not inputs.unknown({A: 5}) and not inputs.unknown({OUT: 0})
    assert inputs.unknown({OUT: 1})
    inputs.add("out@0", {OUT: 4})
    assert not inputs.unknown({OUT: 4}) and inputs.unknown({OUT: 5})
