"""Types of columns that hold all values of another one, as a table with a log takes them in place (Delta 4.4.0).

Delta would also make decimals or doubles of whole numbers. Readers would then compute otherwise: that stays a rebuild,
as does a date that becomes a timestamp, which asks for another feature of the table.
"""

import re

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(([0-9]{1,9}),([0-9]{1,9})\)")


def is_wider(kind: str, than: str) -> bool:
    """Return whether a column of one type takes another one in place; both as `read_type` writes them."""
    if than in _WHOLE_NUMBERS and kind in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(kind) > _WHOLE_NUMBERS.index(than)
    if (than, kind) == ("float", "double"):
        return True
    new, old = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(than)
    if new is None or old is None:
        return False
    digits, scale = (int(new[n]) - int(old[n]) for n in (1, 2))
    return digits >= scale >= 0 and digits > 0


def rounds(kind: str, into: str) -> bool:
    """Return whether values of a type lose digits in a narrower one without an error, as a stream writes them (4.4.0).

    What is too large for it is an error; what is too fine is rounded.
    """
    if into == "float":
        return True
    wide, narrow = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(into)
    return wide is not None and narrow is not None and int(wide[2]) > int(narrow[2])
