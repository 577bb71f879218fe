"""The terminal while it is lent to another program: Ctrl-Z, an editor, and the mouse on request."""

import os
import signal
import termios
from pathlib import Path

import pytest

from tests.terminal.pseudo_terminal import Terminal, console
from tests.terminal.test_console_in_terminal import all_open, ready

pytestmark = pytest.mark.terminal

LEAVES, COMES = b"\x1b[?1049l", b"\x1b[?1049h"


def is_stopped(terminal: Terminal) -> bool:
    return Path(f"/proc/{terminal.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def line_mode(terminal: Terminal) -> bool:
    """Return whether the terminal echoes and reads lines, as a shell needs it."""
    flags = termios.tcgetattr(terminal.master)[3]
    return bool(flags & termios.ECHO and flags & termios.ICANON)


@pytest.mark.sampled
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="whether a process is stopped is read from /proc")
@pytest.mark.parametrize("typed", ["", "T", ":sto"])
def test_ctrl_z_gives_the_terminal_back_and_the_console_returns(typed: str) -> None:
    with console(80, 24, "--still") as terminal:
        ready(terminal)
        terminal.send("jjj" + typed)
        terminal.quiet()
        before = terminal.text()
        terminal.raw.clear()
        terminal.send("\x1a")
        terminal.wait(lambda _: is_stopped(terminal))
        terminal.pump(0.1)
        assert LEAVES in terminal.raw
        assert line_mode(terminal)
        terminal.screen.reset()
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.wait(lambda text: text.splitlines()[3:20] == before.splitlines()[3:20])
        assert not line_mode(terminal)
        assert COMES in terminal.raw
        terminal.send("\x1b")
        terminal.quiet()
        terminal.send("?")
        terminal.wait(lambda text: "KEYS on home" in text)


def test_e_opens_the_editor_and_returns_to_the_diff(tmp_path: Path) -> None:
    edited = tmp_path / "dml.oven load.sql"
    edited.write_text("SELECT 1")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "\\nEDITING %s" "$2"; read -r answer; echo "-- $1 $answer" >> "$2"\n')
    editor.chmod(0o755)
    environ = {"EDITOR": f"{editor} -w", "VISUAL": "", "EDITED_FILE": str(edited)}
    with console(80, 24, "--still", environ=environ) as terminal:
        all_open(terminal)
        terminal.send("jj")
        terminal.quiet()
        terminal.send("e")
        terminal.wait(lambda text: "EDITING" in text)
        assert line_mode(terminal)
        terminal.send("said\n")
        terminal.wait(lambda text: "─ table" in text)
        assert edited.read_text() == "SELECT 1-- -w said\n"
        assert not line_mode(terminal)
        terminal.quiet()
        assert "no change" not in terminal.text()
        terminal.send("q")
        terminal.wait(lambda text: "TREND" in text)


def test_an_editor_that_cannot_be_started_is_one_sentence() -> None:
    with console(80, 24, "--still", environ={"VISUAL": "", "EDITOR": "/no/such/editor"}) as terminal:
        ready(terminal)
        terminal.send("jj")
        terminal.quiet()
        terminal.send("e")
        terminal.wait(lambda text: "cannot be started: No such file or directory; set EDITOR" in " ".join(text.split()))
        assert not line_mode(terminal)


@pytest.mark.sampled
@pytest.mark.parametrize("asked", [False, True])
def test_wheel_and_click_move_the_cursor_where_the_mouse_is_asked_for(asked: bool) -> None:
    with console(80, 24, "--still", environ={"HEADGATE_MOUSE": "1" if asked else ""}) as terminal:
        all_open(terminal)
        assert (b"\x1b[?1000h" in terminal.raw) == asked
        assert b"\x1b[?1003h" not in terminal.raw
        terminal.send("jj")
        terminal.wait(lambda text: "landed_clients" in text.splitlines()[1])
        if asked:
            terminal.send("\x1b[<65;10;10M")
            terminal.wait(lambda text: "crm_orders" in text.splitlines()[1] or "facts" in text.splitlines()[1])
            terminal.send("\x1b[<0;10;8M\x1b[<0;10;8m")
            terminal.wait(lambda text: "> clients " in text.splitlines()[1])
