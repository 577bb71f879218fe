"""References to secrets, which stand in files and records instead of the secrets themselves."""

import re
from dataclasses import dataclass
from enum import StrEnum


class SecretKind(StrEnum):
    """Where a secret is found, in the process that needs it."""

    VARIABLE = "env"
    """In an environment variable."""
    FILE = "file"
    """In a file that contains nothing else."""
    COMMAND = "command"
    """On the standard output of a command."""


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A reference to a secret: `${env:NAME}`, `${file:/path}` or `${command:program argument}`."""

    kind: SecretKind
    of: str
    """Name of an environment variable, absolute path of a file, or a command line without a shell."""

    @property
    def text(self) -> str:
        """The reference as it is written."""
        return f"${{{self.kind}:{self.of}}}"


_REFERENCE = re.compile(r"\$\{(?P<kind>env|file|command):(?P<of>[^{}\r\n]+)\}\Z")


def secret_reference(text: str) -> SecretReference | None:
    """Parse a reference; None if the text is not one, or if the path of its file is not absolute."""
    found = _REFERENCE.match(text)
    if found is None or (found["kind"] == SecretKind.FILE and not found["of"].startswith("/")):
        return None
    return SecretReference(SecretKind(found["kind"]), found["of"])
