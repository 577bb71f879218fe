"""What a folder protects and rules, from its YAML alone: SQL that cannot be read is in nobody's way."""

from collections.abc import Mapping

from core.model.names import TableName
from core.model.problems import Problem
from core.policy.model import Policy
from core.project.model import Settings
from core.project_files.manifest import MANIFEST_PATH, read_manifest
from core.project_files.paths import ScriptFolder, read_script_folders
from core.project_files.table_settings import read_settings


def declared_policy(texts: Mapping[str, str], environment: str, problems: list[Problem]) -> Policy | None:
    """Read one environment's policy from paths and texts, those of SQL files may be empty; None where it is not there.

    What is wrong stands in `problems` afterwards.
    """
    manifest = read_manifest(texts.get(MANIFEST_PATH), problems)
    declared = next((found for found in manifest.environments if found.name == environment), None)
    protected = protected_tables(texts, manifest.defaults, problems)
    return declared.declared_policy(protected) if declared else None


def protected_tables(texts: Mapping[str, str], defaults: Settings, problems: list[Problem]) -> tuple[TableName, ...]:
    """List the declared tables whose own yml, or that of their unit, says `protect: true`."""
    found = []
    for folder in read_script_folders(texts, problems):
        known: dict[str, Settings] = {}
        for table in folder.ddl:
            path = _yml(folder, table)
            if path not in known:
                known[path] = read_settings(texts[path] if path else "", path, defaults, problems)
            if known[path].protect:
                found.append(table)
    return tuple(sorted(found))


def _yml(folder: ScriptFolder, table: TableName) -> str:
    return folder.yml.get(table) or folder.yml.get(folder.unit, "")
