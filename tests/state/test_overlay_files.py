"""The files of overlays beside the home of their base."""

from pathlib import Path

from core.model.names import TableName as T
from core.project.overlay import OVERLAY_FILE, Overlay, overlay_as_text
from state.overlay_files import overlays_beside, versions_read_by_overlays


def test_overlays_are_found_beside_their_base_and_damaged_files_hide_no_other(tmp_path: Path) -> None:
    dev, stage = str(tmp_path / "dev"), str(tmp_path / "stage")
    for name, base in (("pr-1", dev), ("pr-2", dev), ("pr-3", stage), ("pr-4", ""), ("dev", "")):
        (tmp_path / name).mkdir()
        text = overlay_as_text(Overlay("dev", base, "/d", "/b", 1.0, "ana", 2.0, inherited={T("a"): len(name)}))
        if name != "dev":
            (tmp_path / name / OVERLAY_FILE).write_text(text if base else "{")
    assert overlays_beside(dev) == ("pr-1", "pr-2", "pr-3", "pr-4")
    assert versions_read_by_overlays(dev) == {"a": (("pr-1", 4), ("pr-2", 4))}
    assert versions_read_by_overlays(str(tmp_path / "nowhere" / "dev")) == {}
