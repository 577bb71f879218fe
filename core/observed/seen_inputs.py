"""Topics and folders as the agent saw them shortly before a plan, kept by location among the answers to plans."""

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenTopics:
    """Which topics of a location (`core.sql.kafka_topics.kafka_location`) do not exist."""

    missing: tuple[str, ...] = ()
    """Topics that do not exist, in the order of the location."""
    unread: str = ""
    """Why it is unknown which topics exist; empty if it is known."""

    def as_text(self) -> str:
        """Return the observation as a string, from which `seen_topics` restores it."""
        return json.dumps({"missing": self.missing, "unread": self.unread}, separators=(",", ":"))


def topics_key(location: str) -> str:
    """Return the key under which the ledger keeps what was seen at a location."""
    return f"topics {location}"


def seen_topics(answers: Mapping[str, str], location: str) -> SeenTopics | None:
    """Return what was seen at a location; None if nothing is stored, or if it is damaged."""
    try:
        found = json.loads(answers[topics_key(location)])
        return SeenTopics(tuple(map(str, found["missing"])), str(found["unread"]))
    except (ValueError, KeyError, TypeError):
        return None


def folder_key(location: str) -> str:
    """Return the key under which the ledger keeps what was seen at the declared location of a table of files.

    The value is the absolute path of a folder that does not exist, or empty.
    """
    return f"folder {location}"


def missing_folder(answers: Mapping[str, str], location: str) -> str:
    """Return the absolute path of a folder that does not exist; empty if it does, or if the agent has not looked."""
    return answers.get(folder_key(location), "")
