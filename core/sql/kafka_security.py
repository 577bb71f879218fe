"""Security options of Kafka topics, and the settings of the two clients made from them.

Spark reads topics with Kafka's Java client, and Headgate measures lag with librdkafka. A secret is a reference to an
environment variable or a file. Each client resolves it in its own process, so no text, plan, ledger or log holds the
secret.
"""

import re
from collections.abc import Callable, Mapping

from core.model.secret_references import SecretKind, SecretReference, secret_reference
from core.text.sentence import Fact, FactKind

PREFIX = "kafka."
_PROTOCOL, _MECHANISM, _USER, _PASSWORD = "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"
_TRUSTED, _OWN, _KEY_PASSWORD = "ssl.truststore.location", "ssl.keystore.location", "ssl.key.password"
_HOST_CHECK, _ISOLATION = "ssl.endpoint.identification.algorithm", "isolation.level"
_SHARED = (_PROTOCOL, _MECHANISM, _USER, _PASSWORD, _TRUSTED, _OWN, _KEY_PASSWORD, _HOST_CHECK, _ISOLATION)
"""Settings that both clients need, as the Java client names them."""
_LIBRARY_NAMES: Mapping[str, tuple[str, ...]] = {
    _TRUSTED: ("ssl.ca.location",),
    _OWN: ("ssl.certificate.location", "ssl.key.location"),
}
_SECURITY = ("security.", "sasl.", "ssl.")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ISOLATIONS = ("read_uncommitted", "read_committed")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDERS = {
    "kafka.config.providers": "env,dir",
    "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "kafka.config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}
"""Classes of Kafka's Java client that resolve references (kafka-clients 3.9.2)."""
_SECRET = re.compile(r"password|jaas|secret|token|keystore\.key|ssl\.key\b", re.I)
_UNUSABLE = re.compile(r"[:'\"\\]")
"""Characters of a reference that Kafka's Java client would read as something else."""


class SecurityFault(FactKind):
    """Why the clients of a Kafka cluster cannot be set up as declared."""

    SECRET = (
        "has the secret {option} in its OPTIONS, which the ledger would store",
        "refer to it: '{option}'='${{env:NAME}}', or '${{file:/path}}'",
    )
    UNKNOWN = "has the option {option}, which only one of the two Kafka clients has", "remove it; options: {known}"
    REFERENCE = (
        "has a variable in {option} that is no reference to a secret",
        "write '${{env:NAME}}' or '${{file:/path}}' as the whole value of an option of sasl.* or ssl.*",
    )
    VALUE = "has {option} {value}", "write one of {known}"
    MECHANISM = "names no mechanism of SASL that Headgate supports", "set 'kafka.sasl.mechanism' to one of {known}"
    LOGIN = "has no {option}, which SASL needs", "add it; a secret is a reference: '${{env:NAME}}'"
    PATH = "names the file {path} in {option}, which is no absolute path", "write the path where agent and pool run"


def reference(value: str) -> SecretReference | None:
    """Parse a reference to a variable or file; None if the value is not one that Kafka's Java client can resolve."""
    found = secret_reference(value)
    return None if found is None or found.kind == SecretKind.COMMAND or _UNUSABLE.search(found.of) else found


def security_fault(options: Mapping[str, str]) -> Fact[SecurityFault] | None:
    """Return the first fault in the options that secure connections; None if there is none.

    The keys of `options` are in lower case.
    """
    for option, value in options.items():
        name = option.removeprefix(PREFIX)
        is_shared = option.startswith(PREFIX) and name in _SHARED
        if _SECRET.search(option) and is_shared and "${" not in value:
            return SecurityFault.SECRET.of(option=option)
        if not is_shared and (name.startswith(_SECURITY) or _SECRET.search(option)):
            known = tuple(PREFIX + each for each in _SHARED)
            return SecurityFault.UNKNOWN.of(option=option, known=known)
        if "${" in value and (not is_shared or reference(value) is None):
            return SecurityFault.REFERENCE.of(option=option)
        if name in (_TRUSTED, _OWN) and not value.startswith("/"):
            return SecurityFault.PATH.of(option=option, path=value)
    given = shared_settings(options)
    for name, known in ((_PROTOCOL, _PROTOCOLS), (_ISOLATION, _ISOLATIONS)):
        if given.get(name, known[0]) not in known:
            return SecurityFault.VALUE.of(option=PREFIX + name, value=given[name], known=known)
    protocol = given.get(_PROTOCOL, _PROTOCOLS[0])
    if protocol.startswith("SASL") and given.get(_MECHANISM) not in _LOGIN_MODULES:
        return SecurityFault.MECHANISM.of(known=tuple(_LOGIN_MODULES))
    lacks = next((name for name in (_USER, _PASSWORD) if protocol.startswith("SASL") and not given.get(name)), None)
    return SecurityFault.LOGIN.of(option=PREFIX + lacks) if lacks else None


def shared_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that both clients need, sorted, with references in place of secrets."""
    given = {name.lower().removeprefix(PREFIX): value for name, value in options.items() if is_of_client(name)}
    return {name: given[name] for name in sorted(_SHARED) if name in given}


def is_of_client(option: str) -> bool:
    """True if an option of a table belongs to Kafka's own client."""
    return option.lower().startswith(PREFIX)


def spark_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's Kafka source for these `shared_settings`.

    The Java client resolves the references itself, and reads a file each time that it connects.
    """
    found = {PREFIX + name: _for_java(value) for name, value in settings.items() if name not in (_USER, _PASSWORD)}
    found |= {PREFIX + f"ssl.{store}.type": "PEM" for store in ("truststore", "keystore") if _store(store) in settings}
    if module := _LOGIN_MODULES.get(settings.get(_MECHANISM, "")):
        user, password = (_quoted(settings.get(name, "")) for name in (_USER, _PASSWORD))
        found["kafka.sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return found | (_PROVIDERS if any(map(reference, settings.values())) else {})


def library_settings(settings: Mapping[str, str], resolved: Callable[[str], str]) -> dict[str, str]:
    """Return the settings of librdkafka for these `shared_settings`; `resolved` replaces references with secrets."""
    found = {}
    for name, value in settings.items():
        for theirs in _LIBRARY_NAMES.get(name, (name,)):
            found[theirs] = resolved(value)
    if found.get(_HOST_CHECK) == "":
        found[_HOST_CHECK] = "none"
    return found


def _store(name: str) -> str:
    return f"ssl.{name}.location"


def _for_java(value: str) -> str:
    found = reference(value)
    if found is None or found.kind != SecretKind.FILE:
        return value
    folder, _, name = found.of.rpartition("/")
    return f"${{dir:{folder or '/'}:{name}}}"


def _quoted(value: str) -> str:
    escaped = value if reference(value) else value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_for_java(escaped)}"'
