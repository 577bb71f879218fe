"""The command `releases`: what was swapped in, what it replaced, and how to go back."""

import time

from tui.command_line.context import CommandContext
from tui.presentation.reports.releases import release_as_json, release_lines, releases_of


def releases(context: CommandContext) -> int:
    """List the releases that serve, the newest first."""
    found = releases_of(context.operations.reader.deployments(include_deleted=True))
    if context.voice.as_json:
        context.voice.data({"format": "headgate.releases/1", "releases": [release_as_json(each) for each in found]})
        return 0
    context.voice.print(release_lines(found, time.time()))
    if not found:
        context.voice.say("no version that serves has replaced another one")
    return 0
