"""`connectors:` of headgate.yml: what pools need beside Spark; a wrong value is a Problem with its line."""

from core.model.problems import Problem, Where
from core.project.connectors import CONNECTORS, Connector, is_exclusion, wrong_coordinate
from core.project_reader.yaml_reader import YamlSection
from core.text.wording import did_you_mean


def read_connectors(top: YamlSection) -> tuple[Connector, ...]:
    """Read the connectors of a project, sorted by name; one that is left empty is as this version knows it."""
    section = top.section("connectors")
    if section is None:
        return ()
    found = []
    for name in sorted(section.nodes):
        if name not in CONNECTORS:
            known = did_you_mean(name, CONNECTORS) or f"connectors: {', '.join(CONNECTORS)}"
            section.problems.append(
                Problem(f"{name} is not a connector that this version knows", known, section.at(name), name)
            )
            continue
        below = section.section(name)
        found.append(_connector(below, CONNECTORS[name]) if below is not None else CONNECTORS[name])
    return tuple(found)


def _connector(section: YamlSection, default: Connector) -> Connector:
    section.only(("coordinates", "exclude", "jars"))
    jars = section.texts("jars", ())
    return Connector(
        name=default.name,
        coordinates=_coordinates(section, () if jars else default.coordinates, default.coordinates[0]),
        exclude=_exclusions(section, default.exclude),
        jars=jars,
    )


def _coordinates(section: YamlSection, default: tuple[str, ...], example: str) -> tuple[str, ...]:
    given = section.texts("coordinates", default)
    lines = dict(section.entries("coordinates"))
    for coordinate in given:
        if wrong := wrong_coordinate(coordinate):
            where = Where(section.path, lines.get(coordinate, section.line))
            section.problems.append(Problem(f"{coordinate} {wrong}", f"write {example}", where, coordinate))
    return given


def _exclusions(section: YamlSection, default: tuple[str, ...]) -> tuple[str, ...]:
    given = section.texts("exclude", default)
    if not all(map(is_exclusion, given)):
        section.wrong("exclude", "a list of group:artifact", 'write exclude: ["org.slf4j:*"]')
        return default
    return given
