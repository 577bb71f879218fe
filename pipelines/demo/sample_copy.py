"""Copies the sample project. Each copy gets a new project id, and a marker file that lists what a purge deletes."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from core.model.errors import HeadgateError, Refused
from core.model.table_formats import WRITTEN, table_format
from pipelines.demo.data_folder import open_folder
from pipelines.demo.event_simulation import FOLDER, KEYED_TABLES
from pipelines.whole_files import read_object

MARKER = ".headgate-demo"
"""Marker file of a demo folder, which makes the folder reusable and lists the copied files for a purge."""
PROGRAM = Path(__file__).parents[2]
"""The repository clone, or the folder in which Headgate is installed."""


@dataclass(frozen=True, slots=True)
class SampleCopy:
    """A copy of the sample project: its folder and its project id."""

    folder: Path
    project_id: str
    made: bool
    """False if the copy already existed and was left unchanged."""

    @property
    def data(self) -> Path:
        """Data folder of the copy's default environment."""
        return self.folder / "data"


TRIGGER_WITH_LOG = "40 seconds"
"""Trigger interval of the sample's statements if their table format has a transaction log."""


def copy_sample(folder: str | Path, format: str = "") -> SampleCopy:
    """Copy the sample project with tables in `format`, or return the existing copy.

    A new copy has a new project id; the default format is the first of `WRITTEN`. Raises Refused if the folder exists
    and is not a demo, or if the existing copy's tables have another format.
    """

    def check(marker: dict[str, Any], target: Path) -> None:
        if "scenario" in marker:
            raise Refused(f"{target} is a demo of scenario {marker['scenario']}", remedy="give another folder")
        there = marker.get("format", WRITTEN[0])
        if format and format != there:
            raise Refused(f"{target} is a demo whose tables are {there}", remedy="give another folder")

    return place_copy(folder, partial(_build, format=format or WRITTEN[0]), check)


def place_copy(
    folder: str | Path,
    build: Callable[[Path, str], dict[str, Any]],
    check: Callable[[dict[str, Any], Path], None],
) -> SampleCopy:
    """Create a demo's folder, or return the existing copy.

    `build` is given a temporary folder and the project id; it writes the files to that folder and returns additional
    entries for the marker file. The folder is renamed last, so an incomplete copy is never used. `check` raises Refused
    unless the marker of an existing demo is acceptable. Raises Refused if the folder exists and is not a demo.
    """
    target = Path(folder).expanduser().resolve()
    if target == PROGRAM or PROGRAM in target.parents:
        raise Refused(f"{target} is inside Headgate's own folder", remedy="give a folder outside it")
    known = project_id(target)
    if known is not None:
        check(read_object(target / MARKER) or {}, target)
        return SampleCopy(target, known, False)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target} exists and is not a Headgate demo", remedy="give another folder, or an empty one")
    identity = str(uuid4())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
            building = Path(beside) / "copy"
            marker = {"made_by": "headgate demo", "project_id": identity, **build(building, identity)}
            made = sorted(path.relative_to(building).as_posix() for path in building.rglob("*"))
            (building / MARKER).write_text(json.dumps(marker | {"made": made}) + "\n")
            os.replace(building, target)
    except OSError as error:
        raise HeadgateError(
            f"the demo cannot be copied to {target}: {error.strerror}", remedy="give a folder that you can write to"
        ) from error
    return SampleCopy(target, identity, True)


def project_id(folder: Path) -> str | None:
    """Return the project id in the marker file of a demo's folder; None if there is no valid marker file."""
    marker = read_object(folder / MARKER) or {}
    value = marker.get("project_id")
    return value if marker.get("made_by") == "headgate demo" and isinstance(value, str) else None


def with_project_id(manifest: str, identity: str) -> str:
    """Return the text of a headgate.yml with another project id."""
    text, count = re.subn(r"^id: .*$", f"id: {identity}", manifest, flags=re.MULTILINE)
    assert count == 1, "the sample's headgate.yml has one id"
    return text


def _build(building: Path, identity: str, *, format: str) -> dict[str, Any]:
    left_out = shutil.ignore_patterns("reference", "__pycache__", "headgate.yml")
    shutil.copytree(FOLDER, building, ignore=left_out)
    if table_format(format).keyed:
        shutil.copytree(KEYED_TABLES, building, dirs_exist_ok=True)
    data = open_folder(building / "data").path
    shutil.copytree(FOLDER / "reference", data / "reference")
    text = with_project_id((FOLDER / "headgate.yml").read_text(), identity)
    (building / "headgate.yml").write_text(text + _store_tables(building, format))
    if table_format(format).transaction_log:
        _lengthen_triggers(building)
    return {"format": format}


def _lengthen_triggers(folder: Path) -> None:
    """Lengthen the trigger intervals of all statements, because every commit to a transaction log is expensive.

    With the intervals of the Parquet sample, 19 statements on Delta never became idle on two cores. The batches of
    keyed tables, with a dozen jobs each, did not finish within 290 s (Delta 4.4.0).
    """
    for file in (folder / "headgate.yml", *folder.glob("pipelines/**/*.yml")):
        text = file.read_text()
        file.write_text(re.sub(r"(?m)^(\s*trigger:) \d+ seconds$", rf"\1 {TRIGGER_WITH_LOG}", text))


def _store_tables(folder: Path, format: str) -> str:
    """Set the format in every written table's DDL. Returns the lines that the connector needs in headgate.yml."""
    for ddl in folder.glob("pipelines/**/ddl.*.sql"):
        text = ddl.read_text()
        ddl.write_text(text.replace(f"\nUSING {WRITTEN[0]};", f"\nUSING {format};"))
    connector = table_format(format).connector
    return f"connectors: {{{connector}: {{}}}}\n" if connector else ""
