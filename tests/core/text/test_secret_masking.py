"""Secrets in visible text: whatever looks like one is masked, and nothing else."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.text.secret_masking import mask_literals, mask_secrets


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("password=hunter2, user=ann", "password=*****, user=ann"),
        ("'fs.s3a.secret.key' = 'abc'", "'fs.s3a.secret.key' = '*****'"),
        ('{"api_key": "abc"}', '{"api_key": "*****"}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer *****"),
        ("sc://h:1/;authorization=Bearer%20abc;x=1", "sc://h:1/;authorization=*****;x=1"),
        ("jdbc:x://ann:hunter2@db:5432/shop", "jdbc:x://ann:*****@db:5432/shop"),
        ("cannot clone https://abc@h/p", "cannot clone https://*****@h/p"),
        ("https://abc:@h and https://abc:x-oauth-basic@h", "https://*****:@h and https://*****:*****@h"),
        ("key AKIAABCDEFGHIJKLMNOP was refused", "key ***** was refused"),
    ],
)
def test_a_secret_is_masked(text: str, masked: str) -> None:
    assert mask_secrets(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:4040/jobs",
        "kafka://h:9092",
        "postgresql://reader@h:5432/shop",
        "ssh://git@h/p",
        "https://h/p?mail=ann@h",
        "https://h/@scope/p",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'",
        "\tat org.apache.spark.TokenCache.get(TokenCache.scala:12)",
        "unexpected token near line 4",
        "extraneous token: FORM",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert mask_secrets(text) == text


TOKENS = st.text(string.ascii_letters + string.digits + "-._~!$&()*+,;=%", min_size=1, max_size=60)
"""What may stand before `@` (RFC 3986, 3.2.1), without quotes."""
AROUND = st.sampled_from(["", "cannot read ", "url='", "(", "password=hush ", "http://h/a@b "])


@given(TOKENS, AROUND, st.sampled_from(["http", "https", "git+https"]), st.sampled_from(["", ":"]))
def test_a_token_before_the_host_of_a_web_address_is_masked_whatever_it_is(
    token: str, before: str, scheme: str, end: str
) -> None:
    assume(not token.startswith("${"))
    masked = mask_secrets(f"{before}{scheme}://{token}{end}@host/path")
    assert masked.endswith(f"{scheme}://*****{end}@host/path")
    assert mask_literals(f"- {scheme}://{token}{end}@host/path") == f"- {scheme}://*****{end}@host/path"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("OPTIONS ('password' = 'hunter2', user 'ann')", "OPTIONS ('password' = '*****', user 'ann')"),
        (
            "WITH (kafka.sasl.password 'x y', 'secret' => \"v\")",
            "WITH (kafka.sasl.password '*****', 'secret' => \"*****\")",
        ),
        ("'jaas' = 'x username=\"a\" password=\"b\";'", "'jaas' = 'x username=\"a\" password=\"*****\";'"),
        ("url 'jdbc:x://ann:hunter2@db/shop'", "url 'jdbc:x://ann:*****@db/shop'"),
        ("password: hunter2", "password: *****"),
        ("WHERE pwd = 'abc' AND a.token = b.token", "WHERE pwd = '*****' AND a.token = b.token"),
    ],
)
def test_a_secret_in_a_text_of_a_project_is_masked(text: str, masked: str) -> None:
    assert mask_literals(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "'password' = '${PASSWORD}'",
        "password: ${PASSWORD}",
        "SELECT token, 'x' AS secrets, access_key FROM STREAM t WHERE a.password = b.password",
        "kind IN ('password', 'token', 'x') AND api_key IS NOT NULL",
        "concat(token, 'x')",
        "http://localhost:4040/jobs",
        "https://${TOKEN}@h/p",
    ],
)
def test_sql_without_a_secret_is_shown_unchanged(text: str) -> None:
    assert mask_literals(text) == text
