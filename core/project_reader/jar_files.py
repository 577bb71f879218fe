"""Jars of functions among the texts of a project, each as a description of its content, and the checks of them.

A jar is not a text. Whoever reads the files of a project puts a description in its place: the hash of the content, and
what its class files declare about the classes that functions name. Nothing in a jar is executed to describe it.
"""

import hashlib
import io
import json
import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

from core.model.problems import Problem, Severity, Where
from core.project.unreadable_file import UnreadableFile
from core.project_reader.paths import FUNCTIONS_FOLDER, function_scope, is_jar, jar_path
from core.sql.function_calls import Parameter
from core.sql.jar_functions import JarDeclaration
from core.sql.jar_relocation import UNREADABLE, UnusableJar, check_files, read_file
from core.sql.java_classes import DamagedClass, JavaClass, read_class
from core.sql.registered_functions import is_of_jar, named_jar, with_jar_hash
from core.text.wording import counted, did_you_mean

_MOST_FILES = 100_000
_LARGEST_CLASS = 1024 * 1024
_SPARK = "org/apache/spark/"
_NAMES_CLASS = re.compile(r"\bAS\s+'(?P<name>[\w.$]+)'\s+USING\s+JAR\b", re.IGNORECASE)
_SCALA = re.compile(r"_(?P<version>2\.1[0-2])(?:[-./]|$)")
"""Matches a version of Scala in the name of an artifact that cannot use Spark 4.2.0, which is built for 2.13."""


@dataclass(frozen=True, slots=True)
class DescribedClass:
    """A class that a function names."""

    fault: str = ""
    """Why Spark cannot use it as a function; empty if it can."""
    types: tuple[str, ...] = ()
    """Names of the Java classes of its arguments and of its result; empty for one that is not known."""


@dataclass(frozen=True, slots=True)
class DescribedJar:
    """The content of a jar."""

    sha256: str
    classes: Mapping[str, DescribedClass] = field(default_factory=dict)
    """The classes that functions name, by name; one that the jar does not contain is missing."""
    asked: tuple[str, ...] = ()
    """The names that were looked up."""
    nearest: Mapping[str, str] = field(default_factory=dict)
    """For names that the jar does not contain, a class that it contains, if one has a similar name."""
    scala: str = ""
    """The version of Scala in the name of the jar, or of an artifact in it, if it is older than that of Spark."""
    of_spark: str = ""
    """A class of Spark that it contains; empty if there is none."""
    without_package: str = ""
    """A class in no package; empty if there is none."""
    unusable: tuple[str, str] = ("", "")
    """Why the jar as a whole cannot be used, and the remedy; empty if it can."""


def classes_in(texts: Mapping[str, str], jar: str) -> tuple[str, ...]:
    """Return the names of the classes that the declarations beside a jar take from it, sorted."""
    folder, _, file = jar.rpartition("/")
    named = (text for path, text in texts.items() if path.rpartition("/")[0] == folder and path.endswith(".sql"))
    return tuple(
        sorted({each["name"] for text in named if named_jar(text) == file for each in _NAMES_CLASS.finditer(text)})
    )


def describe_jar(content: bytes, file: str, classes: Iterable[str]) -> str:
    """Return the text that stands for a jar in a project; `classes` are the names of those that functions name."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            return _as_text(_described(opened, content, file, tuple(classes)))
    except UNREADABLE as error:
        why = str(error) if isinstance(error, _TooMany) else "it is not a jar"
        return UnreadableFile(why, "build it again")


def jar_of(text: str) -> DescribedJar | None:
    """Return the description that stands for a jar; None if the jar could not be read."""
    try:
        read = json.loads(text)
        classes = {name: DescribedClass(each["fault"], tuple(each["types"])) for name, each in read["classes"].items()}
        changed = {"classes": classes, "asked": tuple(read["asked"]), "unusable": tuple(read.get("unusable", ("", "")))}
        return DescribedJar(**{**read, **changed})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def with_jar_hashes(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the texts of a project, in which each declaration of a function of a jar has the hash of the jar."""
    found = {}
    for path, text in texts.items():
        if not (path.endswith(".sql") and FUNCTIONS_FOLDER in path and function_scope(path) is not None):
            continue
        if is_of_jar(text) and (jar := jar_of(texts.get(jar_path(path, text), ""))):
            found[path] = with_jar_hash(text, jar.sha256)
    return {**texts, **found} if found else texts


def jar_problems(declared: JarDeclaration, texts: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what is wrong with the jar of a function, and with the declaration for it.

    A jar that is not among the texts, but whose hash the declaration has, was checked when the function was deployed.
    """
    path = declared.source.path
    beside = posixpath.dirname(path)
    place = posixpath.join(beside, declared.jar)
    if place not in texts:
        if not declared.sha256:
            others = [each.rpartition("/")[2] for each in texts if posixpath.dirname(each) == beside and is_jar(each)]
            remedy = did_you_mean(declared.jar, others) or f"put it beside {path.rpartition('/')[2]}"
            yield _problem(declared, declared.jar_at, f"{place} does not exist", remedy)
        return
    jar = jar_of(texts[place])
    if jar is None or declared.sha256 != jar.sha256:
        return
    reason, remedy = jar.unusable
    if reason:
        yield _problem(declared, declared.jar_at, f"{declared.jar} {reason}", remedy)
        return
    if jar.scala:
        remedy = "build it for Scala 2.13, in which Spark 4.2 is written"
        yield _problem(declared, declared.jar_at, f"{declared.jar} has a name for Scala {jar.scala}", remedy)
    if jar.of_spark:
        summary = f"{declared.jar} contains {jar.of_spark}, and functions need the classes of the pool's Spark"
        yield _problem(declared, declared.jar_at, summary, "build the jar without Spark, for example as `provided`")
    if jar.without_package:
        summary = f"{declared.jar} contains the class {jar.without_package}, which is in no package"
        yield _problem(declared, declared.jar_at, summary, "put it into a package")
    found = jar.classes.get(declared.class_name)
    if found is None:
        if declared.class_name in jar.asked:
            near = jar.nearest.get(declared.class_name, "")
            remedy = f"did you mean {near}?" if near else "correct the name of the class, with its package"
            summary = f"{declared.jar} does not contain the class {declared.class_name}"
            yield _problem(declared, declared.class_at, summary, remedy)
    elif found.fault:
        yield _problem(declared, declared.class_at, f"{declared.class_name} {found.fault}", _CLASS_REMEDY)
    elif len(found.types) != len(declared.parameters) + 1:
        takes = counted(len(found.types) - 1, "argument")
        summary = f"{declared.class_name} takes {takes}, and {declared.name} declares {len(declared.parameters)}"
        yield _problem(declared, declared.class_at, summary, "declare as many parameters as the class takes")
    else:
        yield from _type_problems(declared, found.types)


def unused_jars(texts: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a warning for each jar that no function names."""
    named = {jar_path(path, text) for path, text in texts.items() if path.endswith(".sql")}
    for path in texts:
        if is_jar(path) and path not in named:
            file = path.rpartition("/")[2]
            remedy = f"declare its functions, with USING JAR '{file}', or remove it"
            yield Problem(f"no function names {file}", remedy, Where(path), severity=Severity.WARNING)


_CLASS_REMEDY = (
    "make it a public class with a public constructor without parameters, that implements one interface UDF0 "
)
_CLASS_REMEDY += "to UDF22 of org.apache.spark.sql.api.java with its types, such as UDF1<String, Integer>"

_JAVA = {
    "string": ("java.lang.String",),
    "char": ("java.lang.String",),
    "varchar": ("java.lang.String",),
    "boolean": ("java.lang.Boolean",),
    "tinyint": ("java.lang.Byte",),
    "smallint": ("java.lang.Short",),
    "int": ("java.lang.Integer",),
    "bigint": ("java.lang.Long",),
    "float": ("java.lang.Float",),
    "double": ("java.lang.Double",),
    "decimal": ("java.math.BigDecimal",),
    "binary": ("byte[]",),
    "date": ("java.sql.Date", "java.time.LocalDate"),
    "timestamp": ("java.sql.Timestamp", "java.time.Instant"),
    "timestamp_ntz": ("java.time.LocalDateTime",),
}
"""Java classes of the values of each type, as Spark passes and expects them (4.2.0). The first one is the usual one."""
_KNOWN = frozenset(name for names in _JAVA.values() for name in names)


def _type_problems(declared: JarDeclaration, types: tuple[str, ...]) -> Iterator[Problem]:
    """Yield the types that certainly do not fit; a wrong value would end the statement with an error of Java."""
    result = Parameter("", declared.returns)
    for place, (parameter, java) in enumerate(zip((*declared.parameters, result), types, strict=True)):
        fits = _JAVA.get(re.split(r"\W", parameter.type.lower())[0])
        if fits is None or java not in _KNOWN or java in fits:
            continue
        short, needed = (each.rpartition(".")[2] for each in (java, fits[0]))
        last = place == len(declared.parameters)
        what = f"returns {short}" if last else f"takes {short} as argument {place + 1}"
        named = f"{declared.name} returns" if last else f"{parameter.name} is"
        summary = f"{declared.class_name} {what}, and {named} {parameter.type.upper()}"
        yield _problem(declared, declared.class_at, summary, f"declare the type of the class, or use {needed} in it")


def _problem(declared: JarDeclaration, at: int, summary: str, remedy: str) -> Problem:
    return Problem(summary, remedy, declared.source.where(at), declared.name)


class _TooMany(ValueError):
    """Raised for a jar of too many files."""


def _described(opened: zipfile.ZipFile, content: bytes, file: str, asked: tuple[str, ...]) -> DescribedJar:
    names = opened.namelist()
    if len(names) > _MOST_FILES:
        raise _TooMany(f"it contains more than {_MOST_FILES:,} files")
    try:
        check_files(opened)
    except UnusableJar as error:
        sha256 = hashlib.sha256(content).hexdigest()
        return DescribedJar(sha256, asked=asked, unusable=(error.reason, error.remedy))
    present, classes, nearest = set(names), dict[str, DescribedClass](), dict[str, str]()
    for name in asked:
        entry = f"{name.replace('.', '/')}.class"
        if entry in present:
            classes[name] = _class(opened, entry)
            continue
        simple = re.split(r"[.$]", name)[-1]
        similar = (each for each in names if each.endswith(".class") and re.split(r"[/$]", each[:-6])[-1] == simple)
        if near := next(similar, ""):
            nearest[name] = near[:-6].replace("/", ".")
    artifacts = [file, *(f"{each.split('/')[3]}/" for each in names if re.match(r"META-INF/maven/[^/]+/[^/]+/", each))]
    scala = next((found["version"] for each in artifacts if (found := _SCALA.search(each))), "")
    files = [each.removesuffix(".class") for each in names if each.endswith(".class")]
    own = next((each for each in files if each.startswith(_SPARK)), "")
    return DescribedJar(
        hashlib.sha256(content).hexdigest(),
        classes=classes,
        asked=asked,
        nearest=nearest,
        scala=scala,
        of_spark=own.replace("/", "."),
        without_package=next((each for each in files if "/" not in each and each != "module-info"), ""),
    )


def _class(opened: zipfile.ZipFile, entry: str) -> DescribedClass:
    if opened.getinfo(entry).file_size > _LARGEST_CLASS:
        return DescribedClass(f"is larger than {_LARGEST_CLASS >> 20} MB")
    try:
        read = read_class(read_file(opened, entry))
    except UnusableJar:
        return DescribedClass("cannot be unpacked")
    except DamagedClass as error:
        return DescribedClass(f"cannot be read: {error}")
    if fault := _fault(read):
        return DescribedClass(fault)
    return DescribedClass(types=read.functions[0])


def _fault(read: JavaClass) -> str:
    if not read.functions:
        return "implements no interface UDF0 to UDF22 of Spark itself, with type arguments"
    if len(read.functions) > 1:
        return f"implements {len(read.functions)} of Spark's interfaces for functions"
    if not read.is_public or read.is_abstract:
        return "is not a public class that can be created"
    return "" if read.is_made_without_arguments else "has no public constructor without parameters"


def _as_text(jar: DescribedJar) -> str:
    return json.dumps(asdict(jar), sort_keys=True)
