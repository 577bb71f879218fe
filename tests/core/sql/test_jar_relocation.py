"""Relocation of jars."""

import hashlib
import io
import zipfile
from pathlib import Path

import pyspark
import pytest
from java_class_files import STRING, archive, changed_entry, class_file, fmt_jar, jar, literals

from core.sql import jar_relocation
from core.sql.jar_relocation import UnusableJar, relocated_jar, relocated_package
from core.sql.java_classes import read_class

HASH = "0123456789abcdef" * 4
PACKAGE = relocated_package(HASH)


def files(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_classes_move_with_their_references_and_texts_stay() -> None:
    mine, other = "Lcom/acme/Own<[Lcom/acme/Fmt;TT;>.Inner;", "Lcom/other/Fmt;"
    content = archive({
        "com/acme/Fmt.class": class_file("com.acme.Fmt", "com.acme.Fmt", types=[mine, other, STRING]),
        "com/acme/Own.class": class_file("com.acme.Own", "Lcom/acme/Unknown;"),
    })  # fmt: skip
    found = files(relocated_jar(content, HASH))
    assert list(found) == [f"{PACKAGE}/com/acme/Fmt.class", f"{PACKAGE}/com/acme/Own.class"]
    one = found[f"{PACKAGE}/com/acme/Fmt.class"]
    for text in (f"{PACKAGE}/com/acme/Fmt", f"L{PACKAGE}/com/acme/Own<[L{PACKAGE}/com/acme/Fmt;TT;>.Inner;{other}"):
        assert text.encode() in one
    assert b"\x00\x0ccom.acme.Fmt" in one and b"Lcom/acme/Unknown;" in found[f"{PACKAGE}/com/acme/Own.class"]
    assert read_class(one).functions == ((f"{PACKAGE}.com.acme.Own$Inner", "com.other.Fmt", "java.lang.String"),)


@pytest.mark.parametrize("text", ["com/acme/Fmt", "Lcom/acme/Fmt;", "(Lcom/acme/Fmt;I)V", "com.acme.Fmt", "a"])
def test_literals_keep_texts_that_are_names_of_classes(text: str) -> None:
    content = class_file("com.acme.Fmt", text, types=["Lcom/acme/Fmt;", STRING])
    moved = files(relocated_jar(jar(Fmt=content), HASH))[f"{PACKAGE}/com/acme/Fmt.class"]
    assert literals(moved) == literals(content) == [text]
    assert read_class(moved).functions == ((f"{PACKAGE}.com.acme.Fmt", "java.lang.String"),)


def test_literals_of_serializable_lambdas_move_because_java_compares_them_with_names_of_classes() -> None:
    def moved(says: str, of_lambdas: str) -> list[str]:
        content = class_file("com.acme.Fmt", says, of_lambdas=of_lambdas)
        return literals(files(relocated_jar(jar(Fmt=content), HASH))[f"{PACKAGE}/com/acme/Fmt.class"])

    assert moved("(Lcom/acme/Fmt;)V", "com/acme/Fmt") == ["(Lcom/acme/Fmt;)V", f"{PACKAGE}/com/acme/Fmt"]
    with pytest.raises(UnusableJar, match=r"Fmt\.class, which cannot be relocated: its serializable lambdas"):
        moved("com/acme/Fmt", "com/acme/Fmt")


def test_two_contents_have_no_file_in_common_and_equal_contents_give_equal_jars() -> None:
    jars = [archive({"com/acme/Fmt.class": class_file("com.acme.Fmt", each), "a.properties": b""}) for each in "ab"]
    hashes = [hashlib.sha256(each).hexdigest() for each in jars]
    one, two = (files(relocated_jar(*each)) for each in zip(jars, hashes, strict=True))
    assert not one.keys() & two.keys()
    assert relocated_jar(jars[0], hashes[0]) == relocated_jar(jars[0], hashes[0])


def test_resources_move_along_and_what_describes_the_jar_is_left_out() -> None:
    content = archive({
        "com/acme/Own.class": class_file("com.acme.Own", "a"),
        "com/acme/x.properties": b"com.acme.Own",
        "META-INF/MANIFEST.MF": b"",
        "META-INF/versions/9/module-info.class": b"",
        "META-INF/services/com.acme.Own": b"# com.acme.Own\ncom.acme.Own # mine\norg.other.Own\n",
        "META-INF/services/java.lang.Runnable": b"com.acme.Own\n",
        "module-info.class": b"",
        "scala/Option.class": b"",
        "com/acme/": b"",
    })  # fmt: skip
    found = files(relocated_jar(content, HASH))
    assert found.keys() == {
        f"{PACKAGE}/com/acme/Own.class",
        f"{PACKAGE}/com/acme/x.properties",
        f"META-INF/services/{PACKAGE}.com.acme.Own",
    }
    assert found[f"{PACKAGE}/com/acme/x.properties"] == b"com.acme.Own"
    assert found[f"META-INF/services/{PACKAGE}.com.acme.Own"] == f"{PACKAGE}.com.acme.Own\norg.other.Own\n".encode()


def test_no_damaged_class_ends_the_relocation() -> None:
    whole = class_file("com.acme.Fmt", "a")
    for length in range(len(whole)):
        try:
            relocated_jar(archive({"com/acme/Fmt.class": whole[:length]}), HASH)
        except UnusableJar as error:
            assert error.reason == "contains com/acme/Fmt.class, which cannot be relocated: it is no class file"
    with pytest.raises(UnusableJar, match="is not a jar"):
        relocated_jar(fmt_jar("a")[:-10], HASH)


def damaged_jars() -> dict[str, bytes]:
    """Return jars that cannot be relocated, by the reason."""
    name, stored = "com/acme/Fmt.class", fmt_jar("a")
    deflated = archive({name: class_file("com.acme.Fmt", "a")}, zipfile.ZIP_DEFLATED)
    begin = deflated.index(name.encode()) + len(name)
    return {
        f"contains the encrypted file {name}": changed_entry(stored, 8, b"\x01"),
        f"contains {name} in a compression that Java does not read": archive({name: b"a"}, zipfile.ZIP_BZIP2),
        f"contains {name} in a compression that Java does not read ": changed_entry(stored, 10, b"\x63"),
        f"contains {name}, which cannot be unpacked": deflated[:begin] + b"\xff" * 8 + deflated[begin + 8 :],
        f"contains {name}, which cannot be unpacked ": changed_entry(deflated, 24, b"\xff\xff\x01\x00"),
        f"contains {name}, which cannot be unpacked  ": changed_entry(deflated, 24, b"\x10\x00\x00\x00"),
        "contains META-INF/versions/21/com/acme/Fmt.class, a class for some versions of Java only": archive({
            name: class_file("com.acme.Fmt", "a"), f"META-INF/versions/21/{name}": class_file("com.acme.Fmt", "b"),
        }),
    }  # fmt: skip


@pytest.mark.parametrize("reason", damaged_jars())
def test_a_jar_that_cannot_be_relocated_raises_one_error_with_the_reason(reason: str) -> None:
    with pytest.raises(UnusableJar) as found:
        relocated_jar(damaged_jars()[reason], HASH)
    assert found.value.reason == reason.rstrip() and found.value.remedy


def test_no_more_is_unpacked_than_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar_relocation, "LARGEST_UNPACKED", 2 << 20)
    large = archive({"com/acme/a": bytes(2 << 20), "com/acme/b": b"a"}, zipfile.ZIP_DEFLATED)
    with pytest.raises(UnusableJar, match=r"^has 3 MB when it is unpacked, and may have 2 MB$"):
        relocated_jar(large, HASH)
    # The list of files says that the file is small.
    small = changed_entry(archive({"com/acme/a": bytes(2 << 20)}, zipfile.ZIP_DEFLATED), 24, b"\x01\x00\x00\x00")
    with pytest.raises(UnusableJar, match=r"^contains com/acme/a, which cannot be unpacked$"):
        relocated_jar(small, HASH)


def test_every_class_of_a_large_jar_can_be_relocated_and_read() -> None:
    (place,) = (Path(pyspark.__file__).parent / "jars").glob("commons-lang3-*.jar")
    before, after = files(place.read_bytes()), files(relocated_jar(place.read_bytes(), HASH))
    classes = [name for name in before if name.endswith(".class") and not name.startswith(("META-INF", "module-info"))]
    assert len(classes) > 300
    for name in classes:
        moved, found = read_class(after[f"{PACKAGE}/{name}"]), read_class(before[name])
        assert (moved.java, moved.is_public, moved.is_abstract, len(moved.interfaces)) == (
            found.java, found.is_public, found.is_abstract, len(found.interfaces),
        )  # fmt: skip
        assert after[f"{PACKAGE}/{name}"].count(b"Lorg/apache/commons/lang3/") == 0
        if b"$deserializeLambda$" not in before[name]:
            assert literals(after[f"{PACKAGE}/{name}"]) == literals(before[name])
