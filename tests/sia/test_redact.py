"""Secrets are replaced, and what is none stays as it was."""

import pytest

from sia.redact import redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter2", "password: [redacted]"),
        ("DB_PASSWORD=hunter2 make", "DB_PASSWORD=[redacted] make"),
        ('{"api_key": "abc123", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("export AWS_SECRET_ACCESS_KEY='abc/def+1'", "export AWS_SECRET_ACCESS_KEY='[redacted]'"),
        ("https://max:s3cr3t@example.org/x", "https://max:[redacted]@example.org/x"),
        ("curl -H 'Authorization: Bearer abcdef123456'",
         "curl -H 'Authorization: Bearer [redacted]'"),
        ("Authorization: Basic bWF4OnMzY3IzdA==", "Authorization: Basic [redacted]"),
        ("ghp_0123456789abcdefABCD is it", "[redacted] is it"),
        ("sk-proj-0123456789abcdefABCDEF", "[redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIx.abc-_d", "[redacted]"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb",
         "a\n[redacted]\nb"),
        ("-----BEGIN PRIVATE KEY-----\ncut off", "[redacted]"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_replaced(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "remind me to feed the cat tomorrow at 9",
        "I forgot my password",
        "the key is under the mat",
        "turn the heating to 21: it is cold",
        "see https://example.org/a:b@c",
        "basic facts about tokens",
        "ask-me-anything-about-everything-you-want",
        "",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert redact(text) == text
