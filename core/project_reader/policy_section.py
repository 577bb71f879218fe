"""`environments.<env>.policy` of headgate.yml → Policy; a wrong rule is a Problem with its line, and no rule."""

import re

from core.model.errors import UsageError
from core.model.problems import Problem, Where
from core.policy.freeze_windows import parse_freeze_window
from core.policy.model import ALLOW, APPROVABLE, ASK, POLICY_KEYS, ROLES, Policy
from core.project_reader.yaml_reader import YamlSection
from core.text.wording import did_you_mean

RULES = tuple(key for key in POLICY_KEYS if not key.startswith("protected"))
"""What stands below `policy`; what is protected is said at the environment and in the tables' own files."""

_HOLDER = re.compile(r"@?[^\s@,:]{1,64}\Z")

MOST_H = 10 * 365 * 24
MOST_FACTOR = 1000
MOST_BUSY = 1000


def read_policy_section(section: YamlSection) -> Policy:
    """Read the rules of one environment."""
    return Policy(
        max_replay_rows=section.count("max_replay_rows", example="100M"),
        max_replay_h=section.bound("max_replay_h", most=MOST_H, example="6"),
        disk_factor=section.bound("disk_factor", most=MOST_FACTOR, example="1.3"),
        max_statements=section.count("max_statements", example="40"),
        max_busy_percent=section.bound("max_busy_percent", most=MOST_BUSY, example="80"),
        max_stopped_percent=section.bound("max_stopped_percent", most=100, example="20"),
        freeze=_windows(section),
        approve=_approvable(section),
        approve_rows=section.count("approve_rows", example="10M"),
        roles=_roles(section),
        hold=section.flag("hold", False),
        machine_moves=_machine_moves(section),
    )


def _machine_moves(section: YamlSection) -> str:
    """Read `allow` or `ask`, which is what holds where nothing is said."""
    found = section.text("machine_moves", ASK)
    if found not in (ALLOW, ASK):
        section.wrong("machine_moves", f"{ALLOW} or {ASK}", f"write machine_moves: {ALLOW}, or leave it out")
    return ALLOW if found == ALLOW else ""


def _windows(section: YamlSection) -> tuple[str, ...]:
    found = []
    for text, line in section.entries("freeze"):
        try:
            found.append(parse_freeze_window(text).text)
        except UsageError as error:
            _report(section, f"{section.name}.freeze: {error.summary}", error.remedy, line)
    return tuple(sorted(set(found)))


def _approvable(section: YamlSection) -> tuple[str, ...]:
    found = section.entries("approve")
    for word, line in found:
        if word not in APPROVABLE:
            remedy = did_you_mean(word, APPROVABLE) or f"one or more of {', '.join(APPROVABLE)}"
            _report(section, f"{section.name}.approve: {word} is not something that can require approval", remedy, line)
    return tuple(sorted({word for word, _ in found}))


def _roles(section: YamlSection) -> tuple[tuple[str, tuple[str, ...]], ...]:
    roles = section.section("roles")
    if roles is None:
        return ()
    roles.only(ROLES)
    found = []
    for role in sorted(set(roles.nodes) & set(ROLES)):
        holders = roles.entries(role)
        if not holders:
            roles.wrong(
                role,
                "a list of logins and @groups",
                f'write {role}: [alice, "@sre"], or leave it out to allow everybody',
            )
        for holder, line in holders:
            if not _HOLDER.match(holder):
                _report(
                    section,
                    f"{roles.name}.{role}: {holder!r} is not a login",
                    'write alice, or "@sre" for a group',
                    line,
                )
        found.append((role, tuple(sorted({holder for holder, _ in holders}))))
    return tuple(found)


def _report(section: YamlSection, summary: str, remedy: str, line: int) -> None:
    section.problems.append(Problem(summary, remedy, Where(section.path, line), section.name))
