"""Reading of Java class files, of which nothing is executed: version, constructor, generic interfaces and constants.

The format is that of the Java Virtual Machine Specification 21, chapter 4.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FUNCTION = re.compile(r"org\.apache\.spark\.sql\.api\.java\.UDF\d+")
"""Matches an interface that functions of jars implement; the number is that of the arguments."""
_PUBLIC, _INTERFACE, _ABSTRACT = 0x0001, 0x0200, 0x0400
_FIRST_JAVA = 44
"""Difference between the version of a class file and the version of Java that it needs."""
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""Length of each kind of constant after its tag, except that of texts."""
TEXT = 1
"""Tag of a text among the constants."""
LITERAL = 8
"""Tag of a literal of a string, which is the number of its text."""
TWO_SLOTS = (5, 6)
"""Tags of constants that take two numbers."""
OF_LAMBDAS = "$deserializeLambda$"
"""Name of the method that javac writes for serializable lambdas. It compares names of classes with literals."""
_LDC, _LDC_W, _IINC = 0x12, 0x13, 0x84
_TABLESWITCH, _LOOKUPSWITCH, _WIDE = 0xAA, 0xAB, 0xC4
_LENGTHS = {
    **dict.fromkeys((0x10, _LDC, *range(0x15, 0x1A), *range(0x36, 0x3B), 0xA9, 0xBC), 2),
    **dict.fromkeys((0x11, _LDC_W, 0x14, _IINC, *range(0x99, 0xA9), *range(0xB2, 0xB9)), 3),
    **dict.fromkeys((0xBB, 0xBD, 0xC0, 0xC1, 0xC6, 0xC7), 3),
    0xC5: 4,
    **dict.fromkeys((0xB9, 0xBA, 0xC8, 0xC9), 5),
}
"""Lengths of instructions by their codes; that of the others is 1, or varies."""
_PRIMITIVES = {"B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short",
               "Z": "boolean", "V": "void"}  # fmt: skip


class DamagedClass(ValueError):
    """Raised for bytes that are no class file."""


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class as its file declares it."""

    java: int
    """The oldest version of Java that can load it."""
    is_public: bool
    is_abstract: bool
    """True for interfaces too."""
    is_made_without_arguments: bool
    """True if it has a public constructor without parameters."""
    interfaces: tuple[tuple[str, tuple[str, ...]], ...]
    """The interfaces with type arguments that it names itself, as (name, arguments).

    An argument is the name of a class such as `java.lang.String` or `byte[]`; empty if any type may stand for it.
    """

    @property
    def functions(self) -> tuple[tuple[str, ...], ...]:
        """For each interface of Spark that makes it a function, the types of its arguments and of its result."""
        return tuple(types for name, types in self.interfaces if _FUNCTION.fullmatch(name))


def read_class(content: bytes) -> JavaClass:
    """Read a class file. Raises DamagedClass."""
    try:
        return _Reader(content).read()
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedClass("it is no class file") from error


def used_constants(content: bytes) -> tuple[frozenset[int], frozenset[int]]:
    """Return the numbers of the constants that `OF_LAMBDAS` loads, and of those that other methods and fields use.

    Raises DamagedClass.
    """
    try:
        return _Reader(content).used_constants()
    except (struct.error, IndexError, KeyError) as error:
        raise DamagedClass("it is no class file") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0
        self._constants: dict[int, bytes] = {}

    def read(self) -> JavaClass:
        version, access = self._head()
        for _ in range(self._number()):
            self._member()
        members = [self._member() for _ in range(self._number())]
        signature = dict(self._attributes()).get("Signature")
        text = self._text(struct.unpack(">H", signature)[0]) if signature else ""
        return JavaClass(
            java=version - _FIRST_JAVA,
            is_public=bool(access & _PUBLIC),
            is_abstract=bool(access & (_ABSTRACT | _INTERFACE)),
            is_made_without_arguments=any(
                flags & _PUBLIC and (name, kind) == ("<init>", "()V") for flags, name, kind in members
            ),
            interfaces=tuple(_interfaces(text)),
        )

    def used_constants(self) -> tuple[frozenset[int], frozenset[int]]:
        self._head()
        of_lambdas, of_others = set[int](), set[int]()
        for _ in range(2):
            for _ in range(self._number()):
                _, name, _ = self._take(">HHH")
                used = of_lambdas if self._text(name) == OF_LAMBDAS else of_others
                for attribute, value in self._attributes():
                    if attribute == "ConstantValue":
                        used.update(struct.unpack(">H", value))
                    elif attribute == "Code":
                        (size,) = struct.unpack_from(">I", value, 4)
                        used.update(_loaded(value[8 : 8 + size]))
        return frozenset(of_lambdas), frozenset(of_others)

    def _head(self) -> tuple[int, int]:
        """Read up to the fields, and return the version and the access flags."""
        magic, _, version = self._take(">IHH")
        if magic != 0xCAFEBABE:
            raise DamagedClass("it is no class file")
        self._read_constants()
        access, _, _, interfaces = self._take(">HHHH")
        self._at += 2 * interfaces
        return version, access

    def _read_constants(self) -> None:
        count, index = self._number(), 1
        while index < count:
            (tag,) = self._take(">B")
            if tag == TEXT:
                self._constants[index] = self._bytes(self._number())
            else:
                self._at += SIZES[tag]
            index += 2 if tag in TWO_SLOTS else 1

    def _member(self) -> tuple[int, str, str]:
        flags, name, kind = self._take(">HHH")
        tuple(self._attributes())
        return flags, self._text(name), self._text(kind)

    def _attributes(self) -> Iterator[tuple[str, bytes]]:
        for _ in range(self._number()):
            name, size = self._take(">HI")
            yield self._text(name), self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        found = self._content[self._at : self._at + size]
        if len(found) < size:
            raise IndexError(self._at)
        self._at += size
        return found

    def _number(self) -> int:
        (found,) = self._take(">H")
        return int(found)

    def _take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return found

    def _text(self, index: int) -> str:
        # Java encodes NUL and characters beyond the basic plane in its own way; no name that is compared has them.
        return self._constants[index].decode("utf-8", "replace")


def _loaded(code: bytes) -> Iterator[int]:
    """Yield the numbers of the constants that instructions load."""
    at = 0
    while at < len(code):
        found = code[at]
        if found == _LDC:
            yield code[at + 1]
        elif found == _LDC_W:
            yield from struct.unpack_from(">H", code, at + 1)
        if found in (_TABLESWITCH, _LOOKUPSWITCH):
            at = (at + 4) & ~3  # The operands begin at a multiple of 4.
            _, first, last = struct.unpack_from(">iii", code, at)
            at += 12 + 4 * (last - first + 1) if found == _TABLESWITCH else 8 + 8 * first
        elif found == _WIDE:
            at += 6 if code[at + 1] == _IINC else 4
        else:
            at += _LENGTHS.get(found, 1)


def _interfaces(signature: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the interfaces of a class's generic signature that have type arguments."""
    if not signature:
        return
    at = _after_parameters(signature)
    _, _, at = _type(signature, at)
    while at < len(signature):
        name, arguments, at = _type(signature, at)
        if arguments:
            yield name, arguments


def _after_parameters(signature: str) -> int:
    if not signature.startswith("<"):
        return 0
    depth, at = 1, 1
    while depth:
        depth += {"<": 1, ">": -1}.get(signature[at], 0)
        at += 1
    return at


def _type(text: str, at: int) -> tuple[str, tuple[str, ...], int]:
    """Return the name of the type at a position, its type arguments, and the position after it."""
    if text[at] == "[":
        name, _, end = _type(text, at + 1)
        return (f"{name}[]" if name else ""), (), end
    if text[at] == "*":
        return "", (), at + 1
    if text[at] in "+-":
        return "", (), _type(text, at + 1)[2]
    if text[at] == "T":
        return "", (), text.index(";", at) + 1
    if text[at] != "L":
        return _PRIMITIVES[text[at]], (), at + 1
    name, arguments, at = "", list[str](), at + 1
    while text[at] != ";":
        if text[at] == "<":
            arguments, at = [], at + 1
            while text[at] != ">":
                argument, _, at = _type(text, at)
                arguments.append(argument)
        else:
            name += {"/": ".", ".": "$"}.get(text[at], text[at])
        at += 1
    return name, tuple(arguments), at + 1
