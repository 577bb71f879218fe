"""What is inside a type: fields of a struct, elements of an array; types are text as `core.sql.types` writes it."""

_OPENING, _CLOSING = "<(", ">)"


def field_type(kind: str, name: str) -> str | None:
    """Give the type of `value.name`, empty when it cannot be known; None where the type has no such field."""
    if kind in ("", "variant"):
        return kind
    if kind.startswith("array<"):
        inner = field_type(element_type(kind), name)
        return f"array<{inner}>" if inner else inner
    if kind.startswith("map<"):
        return _arguments(kind)[1]
    return next((each for found, each in fields_of(kind) if found.lower() == name.lower()), None)


def element_type(kind: str) -> str:
    """Give the type of an array's elements or a map's values; empty for everything else."""
    if kind.startswith("array<"):
        return kind[len("array<") : -1]
    return _arguments(kind)[1] if kind.startswith("map<") else ""


def key_type(kind: str) -> str:
    """Give the type of a map's keys."""
    return _arguments(kind)[0]


def fields_of(kind: str) -> tuple[tuple[str, str], ...]:
    """List the fields of a struct with their types; nothing for every other type."""
    if not kind.startswith("struct<"):
        return ()
    return tuple(_field(each) for each in _arguments(kind))


def _field(text: str) -> tuple[str, str]:
    """Split ``name:type [not null] [comment '…']``, the name perhaps in back-ticks."""
    at = text.index("`:", 1) + 1 if text.startswith("`") else text.index(":")
    name = text[1 : at - 1].replace("``", "`") if text.startswith("`") else text[:at]
    depth = 0
    for index in range(at + 1, len(text)):
        depth += (text[index] in _OPENING) - (text[index] in _CLOSING)
        if depth == 0 and text.startswith((" not null", " comment "), index):
            return name, text[at + 1 : index]
    return name, text[at + 1 :]


def _arguments(kind: str) -> list[str]:
    """Split what stands between the outer brackets at its own commas; quoted text may hold any character."""
    inside = kind[kind.index("<") + 1 : -1]
    found: list[str] = []
    depth, start, index = 0, 0, 0
    while index < len(inside):
        char = inside[index]
        if char in "`'":
            index = _closing_quote(inside, index)
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            found.append(inside[start:index])
            start = index + 1
        index += 1
    return [*found, inside[start:]] if inside else []


def _closing_quote(text: str, opened: int) -> int:
    quote, index = text[opened], opened + 1
    while index < len(text) and text[index] != quote:
        index += 2 if text[index] == "\\" and quote == "'" else 1
    return index
