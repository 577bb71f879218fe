"""What looks like a password or a token in a text that is shown to people is masked."""

import re

_PASSWORD = r"(?:password|passwd|passphrase|pwd|(?:api|account|access)[._-]?key)[\w.-]*"
_CALLED = rf"(?:{_PASSWORD}|(?:secret|token|credential)[\w.-]*)"
_SECRET = re.compile(
    rf"""(?P<before>(?:{_CALLED}(?:["'`]?\s*=>?|["'`]\s*:)|{_PASSWORD}\s*:)\s*\\?["']?"""
    r"""|://[^\s/:@"']*:|\bBearer\s+)(?P<value>(?!\d+\))[^\s"'\\,;&)@]+)"""
    r"""|\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[oprsu]_[0-9A-Za-z_]{20,})""",
    re.I,
)
"""A key that is called so with its value, the password of a URL, a bearer token; keys that say what they are."""
_LITERAL = re.compile(
    rf"""(?P<before>{_CALLED}(?:["'`]\s*(?:=>?|:)?\s*|\s*=>?\s*|\s+))(?P<quote>["'])(?!\$\{{)(?:(?!(?P=quote)).)+(?P=quote)""",
    re.I,
)
"""A key that is called so with a value in quotes, as in options of SQL; `${…}` is none."""
_OF_ITSELF = re.compile(
    rf"""(?P<before>{_PASSWORD}\s*:\s*|://[^\s/:@"']*:|\bBearer\s+)(?P<value>(?!\$\{{)[^\s"'\\,;&)@]+)"""
    r"""|\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[oprsu]_[0-9A-Za-z_]{20,})""",
    re.I,
)
_PORT = re.compile(r"\d+(?:/.*)?")
MASK = "*****"


def mask_secrets(text: str) -> str:
    """Return a text in which the values of what looks like a secret are asterisks."""
    return _SECRET.sub(_masked, text)


def mask_literals(text: str) -> str:
    """Return a line of SQL or YAML in which the values of what looks like a secret are asterisks.

    Only values that are given: a column that is called so, and what it is compared with, stays.
    """
    return _OF_ITSELF.sub(_masked, _LITERAL.sub(rf"\g<before>\g<quote>{MASK}\g<quote>", text))


def _masked(found: re.Match[str]) -> str:
    before, value = found["before"], found["value"]
    if before is None:
        return MASK
    # host:port after :// is no user and no password.
    if before.startswith("://") and (_PORT.fullmatch(value) or found.string[found.end() : found.end() + 1] != "@"):
        return found[0]
    return before + MASK
