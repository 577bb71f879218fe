"""Security options of Kafka topics: what may be declared, and the settings that both clients get."""

import pytest

from core.model.secret_references import SecretKind, SecretReference
from core.plan.file import refuse_secrets
from core.sql.ddl_reader import read_ddl
from core.sql.kafka_security import SecurityFault, library_settings, reference, shared_settings
from core.sql.kafka_topics import source_options, topic_fault, topic_place
from core.sql.statement import TableDdl
from core.text.secret_masking import mask_literals

LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "head gate&co",
    "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
    "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
}
MUTUAL = {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.location": "/etc/kafka/client.pem"}


def declared(**options: str) -> TableDdl:
    ddl, problems = read_ddl(text(**options), "ddl.k.sql")
    assert ddl is not None, problems
    return ddl


def text(**options: str) -> str:
    given = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t", **options}
    listed = ", ".join(f"'{name}'='{value}'" for name, value in given.items())
    return f"CREATE TABLE k (id BIGINT) USING kafka OPTIONS ({listed});"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (LOGIN, None),
        ({**LOGIN, "kafka.sasl.password": "${file:/run/secrets/kafka}"}, None),
        ({"kafka.isolation.level": "read_committed"}, None),
        ({**MUTUAL, "kafka.ssl.key.password": "${env:KEY}"}, None),
        ({**MUTUAL, "kafka.ssl.key.password": "hunter2"}, SecurityFault.SECRET),
        ({"kafka.ssl.key.pem": "hunter2"}, SecurityFault.UNKNOWN),
        ({**LOGIN, "kafka.sasl.password": "hunter2"}, SecurityFault.SECRET),
        ({"kafka.sasl.jaas.config": "x required password=hunter2;"}, SecurityFault.UNKNOWN),
        ({"kafka.ssl.truststore.password": "hunter2"}, SecurityFault.UNKNOWN),
        ({**LOGIN, "kafka.sasl.password": "${env:A}hunter2"}, SecurityFault.REFERENCE),
        ({**LOGIN, "kafka.sasl.password": "${file:secret}"}, SecurityFault.REFERENCE),
        ({**LOGIN, "kafka.sasl.password": "${secret:x}"}, SecurityFault.REFERENCE),
        ({"kafka.client.id": "${env:A}"}, SecurityFault.REFERENCE),
        ({"kafka.security.protocol": "TLS"}, SecurityFault.VALUE),
        ({"kafka.isolation.level": "x"}, SecurityFault.VALUE),
        ({**LOGIN, "kafka.sasl.mechanism": "GSSAPI"}, SecurityFault.MECHANISM),
        ({**LOGIN, "kafka.sasl.username": ""}, SecurityFault.LOGIN),
        ({**LOGIN, "kafka.ssl.truststore.location": "ca.pem"}, SecurityFault.PATH),
    ],
)
def test_a_secret_is_a_reference_and_both_clients_know_each_option(
    options: dict[str, str], fault: SecurityFault | None
) -> None:
    found = topic_fault(declared(**options))
    assert (found.kind if found else None) is fault
    assert found is None or (found.remedy and "hunter2" not in f"{found} {found.remedy}")


def test_spark_gets_references_that_its_client_resolves() -> None:
    options = source_options(declared(**LOGIN))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="head gate&co" password="${{env:KAFKA_PASSWORD}}";'
    assert options["kafka.sasl.jaas.config"] == login
    assert options["kafka.ssl.truststore.type"] == "PEM"
    assert options["kafka.config.providers"] == "env,dir"
    assert not {"kafka.sasl.username", "kafka.sasl.password"} & options.keys()
    of_file = source_options(declared(**{**LOGIN, "kafka.sasl.password": "${file:/run/secrets/kafka}"}))
    assert 'password="${dir:/run/secrets:kafka}"' in of_file["kafka.sasl.jaas.config"]


def test_the_library_gets_the_secrets_and_its_own_names() -> None:
    secrets = {"${env:KAFKA_PASSWORD}": "hunter2"}
    settings = shared_settings({**LOGIN, "kafka.ssl.endpoint.identification.algorithm": ""})
    assert library_settings(settings, lambda value: secrets.get(value, value)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "head gate&co",
        "sasl.password": "hunter2",
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_the_location_says_how_to_connect() -> None:
    assert dict(topic_place(declared(**LOGIN).location).settings) == shared_settings(LOGIN)


def test_a_reference_is_no_secret_for_plan_files_and_screens() -> None:
    refuse_secrets({"ddl.k.sql": text(**LOGIN), "location": declared(**LOGIN).location})
    assert mask_literals(text(**LOGIN)) == text(**LOGIN)


def test_references_name_variables_and_absolute_paths() -> None:
    assert reference("${env:A_B}") == SecretReference(SecretKind.VARIABLE, "A_B")
    assert reference("${file:/run/x}") == SecretReference(SecretKind.FILE, "/run/x")
    assert reference("A") is reference("${A}") is reference("${file:x}") is None
    assert reference("${command:pass show kafka}") is reference("${env:a'b}") is None
