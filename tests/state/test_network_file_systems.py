"""A ledger on a network file system is refused."""

from pathlib import Path

import pytest

from core.model.errors import LedgerUnavailable
from state import ledger

LINES = (
    "/dev/vda / ext4 rw 0 0",
    "server:/home /home nfs4 rw 0 0",
    "/dev/vdb /home/local xfs rw 0 0",
    r"me@host:/x /mnt/my\040files fuse.sshfs rw 0 0",
    "C: /mnt/c 9p rw 0 0",
    "tmpfs /home/local/tmp tmpfs rw 0 0",
)


@pytest.mark.parametrize(
    "path, kind, network",
    [
        ("/var/x", "ext4", False),
        ("/home/ana/.local", "nfs4", True),
        ("/home/local/x", "xfs", False),
        ("/home/localhost", "nfs4", True),
        ("/mnt/my files/x", "fuse.sshfs", True),
        ("/mnt/c/Users", "9p", True),
        ("/home/local/tmp/a", "tmpfs", False),
    ],
)
def test_file_system_is_that_of_the_deepest_mount(path: str, kind: str, network: bool) -> None:
    found = ledger.file_system(Path(path), LINES)
    assert (found, ledger.is_network(found)) == (kind, network)


def test_network_file_system_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text("server:/ / nfs4 rw 0 0\n")
    monkeypatch.setattr(ledger, "_MOUNTS", table)
    with pytest.raises(LedgerUnavailable, match="network file system") as caught:
        ledger.refuse_network(tmp_path / "ledger.db")
    assert "HEADGATE_HOME" in caught.value.remedy
