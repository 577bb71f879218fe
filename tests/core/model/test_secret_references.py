"""References to secrets: three forms, and nothing else."""

import pytest

from core.model.secret_references import SecretKind, SecretReference, secret_reference


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${env:SPARK_TOKEN}", SecretReference(SecretKind.VARIABLE, "SPARK_TOKEN")),
        ("${file:/run/secrets/spark}", SecretReference(SecretKind.FILE, "/run/secrets/spark")),
        ("${command:pass show spark/eu}", SecretReference(SecretKind.COMMAND, "pass show spark/eu")),
        ("${file:token}", None),
        ("${env:}", None),
        ("${vault:a}", None),
        ("s3cret", None),
        ("Bearer ${env:A}", None),
        ("${env:A}\n", None),
        ("${env:A\nB}", None),
    ],
)
def test_a_text_is_a_reference_only_as_a_whole(text: str, found: SecretReference | None) -> None:
    assert secret_reference(text) == found
    assert found is None or found.text == text
