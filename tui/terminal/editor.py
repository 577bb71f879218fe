"""The editor of the person at the terminal, which has the terminal until it ends."""

import shlex
import signal
import subprocess
from collections.abc import Mapping


def run_editor(environ: Mapping[str, str], path: str) -> str:
    """Open a file in $VISUAL, else $EDITOR, else vi, and wait; returns why it could not be started, in a sentence."""
    named = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    # Ctrl-C in an editor is the editor's: a handler of our own is set back to the default in the child.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        subprocess.run([*shlex.split(named), path])
    except (OSError, ValueError) as error:
        return f"the editor {named!r} cannot be started: {getattr(error, 'strerror', None) or error}; set EDITOR"
    finally:
        signal.signal(signal.SIGINT, before)
    return ""
