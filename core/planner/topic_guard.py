"""The guard `topics`: denies a plan that would start a statement on a topic that does not exist.

Headgate creates no topics, and refuses such a start also where the broker would create the topic with its defaults.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.model.actions import Action
from core.model.names import TableName
from core.model.table_formats import table_format
from core.observed.seen_inputs import seen_topics
from core.plan.model import Guard, PlanNode
from core.planner.context import DeclaredTables
from core.planner.warning_and_refusal_kinds import GuardFinding
from core.text.sentence import Fact

BEGINS_READING = frozenset(
    {Action.REBUILD, Action.START, Action.RESUME, Action.RESTART, Action.ROLLBACK, Action.UNDELETE}
)
"""Actions after which a statement reads its inputs from a new run of its query."""


@dataclass(frozen=True, slots=True)
class UsedTopics:
    """The topics that a statement writes, or reads through one external table."""

    table: TableName
    location: str
    """The location of the topics, with the name that a written topic has in the environment."""
    parent: TableName | None = None
    """The external table over the topics; None if the statement writes them."""


def used_topics(declared: DeclaredTables, nodes: Iterable[PlanNode]) -> Iterator[UsedTopics]:
    """Yield the topics that the statements need which a plan starts, in the order of the nodes."""
    tables = declared.tables
    for node in nodes:
        if node.action not in BEGINS_READING or not node.version:
            continue
        if (table := tables.get(node.table)) is not None and table.written_topic():
            from core.sql.written_topics import with_topic_named

            yield UsedTopics(node.table, with_topic_named(table.parsed_ddl, declared.environment.naming.of).location)
        for parent in (each.parent for each in node.bindings if each.streamed and not each.version):
            source = tables.get(parent)
            if source is not None and source.external and table_format(source.parsed_ddl.format).topics:
                yield UsedTopics(node.table, source.parsed_ddl.location, parent)


def judge_topics(declared: DeclaredTables, nodes: Sequence[PlanNode], answers: Mapping[str, str]) -> Guard | None:
    """Return the guard `topics`; None if the statements that a plan starts use no topics.

    `answers` contains the agent's observations. Topics that the agent has not seen yet, or could not see, are unknown.
    """
    used = tuple(used_topics(declared, nodes))
    if not used:
        return None
    from core.sql.kafka_topics import create_command, topic_place

    missing: list[Fact[GuardFinding]] = []
    unknown: list[Fact[GuardFinding]] = []
    commands: dict[str, None] = {}
    for each in used:
        seen, place = seen_topics(answers, each.location), topic_place(each.location)
        if seen is None or seen.unread:
            found = GuardFinding.TOPICS_UNREAD if seen else GuardFinding.TOPICS_UNSEEN
            unknown.append(found.of(table=each.table, topics=place.topics, why=seen.unread if seen else ""))
        elif seen.missing:
            wrong = {"table": each.table, "topics": seen.missing, "servers": place.servers}
            kind = GuardFinding.READ_TOPIC_MISSING if each.parent else GuardFinding.WRITTEN_TOPIC_MISSING
            missing.append(kind.of(**wrong, parent=each.parent or ""))
            commands |= dict.fromkeys(create_command(place, topic) for topic in seen.missing)
    if missing:
        return Guard.of("topics", "deny", GuardFinding.TOPICS_MISSING.of(missing=tuple(missing), commands=(*commands,)))
    if unknown:
        return Guard.of("topics", "unknown", GuardFinding.TOPICS_UNKNOWN.of(unknown=tuple(unknown)))
    return Guard.of("topics", "ok", GuardFinding.TOPICS_EXIST.of())
