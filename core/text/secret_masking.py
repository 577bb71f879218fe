"""Masking of passwords and tokens in user-visible strings."""

import re

_PASSWORD = r"(?:password|passwd|passphrase|pwd|(?:api|account|access)[._-]?key)[\w.-]*"
_CALLED = rf"(?:{_PASSWORD}|(?:secret|token|credential|authorization)[\w.-]*)"
_LONE_USER = re.compile(
    r"""(?:(?<=\bhttp://)|(?<=\bhttps://))(?!\$\{)[^\s/?#:@"'\\]+(?=(?::(?:x-oauth-basic)?)?@)""", re.I
)
"""Matches the user in a web address without a password, which is a token; a user of a database is no secret."""
_SECRET = re.compile(
    rf"""(?P<before>(?:{_CALLED}(?:["'`]?\s*=>?|["'`]\s*:)|{_PASSWORD}\s*:)\s*\\?["']?"""
    r"""|://[^\s/:@"']*:|\bBearer(?:\s|%20|\+)+)(?P<value>(?!\d+\))[^\s"'\\,;&)@]+)"""
    r"""|\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[oprsu]_[0-9A-Za-z_]{20,})""",
    re.I,
)
"""Matches the value of a key named like a secret, a password in a URL, a bearer token, or a well-known token."""
_LITERAL = re.compile(
    rf"""(?P<before>{_CALLED}(?:["'`]\s*(?:=>?|:)?\s*|\s*=>?\s*|\s+))(?P<quote>["'])(?!\$\{{)(?:(?!(?P=quote)).)+(?P=quote)""",
    re.I,
)
"""Matches a quoted value of a key whose name suggests a secret, as in SQL options, but not `${…}`."""
_OF_ITSELF = re.compile(
    rf"""(?P<before>{_PASSWORD}\s*:\s*|://[^\s/:@"']*:|\bBearer(?:\s|%20|\+)+)(?P<value>(?!\$\{{)[^\s"'\\,;&)@]+)"""
    r"""|\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[oprsu]_[0-9A-Za-z_]{20,})""",
    re.I,
)
_PORT = re.compile(r"\d+(?:/.*)?")
MASK = "*****"


def masked_address(address: str) -> str:
    """Return a malformed address for a message: without parameters, and without a user and password before `@`."""
    before, at, host = address.partition("?")[0].rpartition("@")
    scheme = before.partition("//") if "//" in before else ("", "", "")
    return f"{scheme[0]}{scheme[1]}{'…@' if at else ''}{host}"


def mask_secrets(text: str) -> str:
    """Mask values that look like secrets."""
    return _SECRET.sub(_masked, _LONE_USER.sub(MASK, text))


def mask_literals(text: str) -> str:
    """Mask literal values that look like secrets in one line of SQL or YAML.

    Unlike `mask_secrets`, this function changes neither a column whose name merely suggests a secret, nor an expression
    that is compared with such a column.
    """
    masked = _LITERAL.sub(rf"\g<before>\g<quote>{MASK}\g<quote>", _LONE_USER.sub(MASK, text))
    return _OF_ITSELF.sub(_masked, masked)


def _masked(found: re.Match[str]) -> str:
    before, value = found["before"], found["value"]
    if before is None:
        return MASK
    # host:port after :// is not user and password.
    if before.startswith("://") and (_PORT.fullmatch(value) or found.string[found.end() : found.end() + 1] != "@"):
        return found[0]
    return before + MASK
