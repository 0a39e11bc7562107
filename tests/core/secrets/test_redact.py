"""Secrets are removed, everything else stays."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.core.secrets.redact import HINTS, MARK, OVER_LINES, redact, redact_blocks

A40 = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7d"  # made up, as all of these
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{A40}\n{A40[:20]}==\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    f"sk-ant-api03-{A40}-{A40}AA", f"sk-proj-{A40}_{A40}", f"sk-svcacct-{A40}", f"sk-or-v1-{A40}",
    f"AIza{A40[:35]}", f"ya29.{A40}", f"ghp_{A40[:36]}", f"gho_{A40[:36]}", f"ghs_{A40[:36]}",
    f"github_pat_{A40[:22]}_{A40}", f"glpat-{A40[:20]}", "xoxb-123456789012-abcdefGHIJKL",
    f"xapp-1-A012-{A40}", f"hooks.slack.com/services/T0123/B0123/{A40[:24]}",
    "AKIAIOSFODNN7ABCDEFG", f"gsk_{A40}", f"hf_{A40[:34]}", f"npm_{A40[:36]}", f"xai-{A40}{A40}",
    f"sk_live_{A40[:24]}", f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{A40}", KEY,
]  # fmt: skip
PLACED = [
    ("sk-{}", "0123456789abcdef0123456789abcdef"), ("sk-{}", A40),
    ("Authorization: Bearer {}", A40), ("authorization: Basic {}", "dXNlcjpwYXNzd29yZDE="),
    ("https://me:{}@example.com/x", "s3cr3t"), ("postgres://me:{}@db:5432/x", "p@ss"),
    ("redis://:{}@cache", "hunter2"), ("DB_PASSWORD={}", "hunter"),
    ("export API_TOKEN={} make", "abc"), ("AWS_SECRET_ACCESS_KEY={}", "ab/cd+ef"),
    ("aws_secret_access_key = {}", "ab/cd+ef9"), ('"password": "{}"', "correct horse"),
    ("'api_key': '{}'", "x y z"), ('{{\\"token\\": \\"{}\\"}}', "abc123"),
    ('secret = "{}"', 'with \\" quote'), ("password: {}", "hunter2"), ("--password {}", "hunter2"),
    ("--api-key={}", "k3y"), ("https://x.io/?access_token={}&a=1", "abc1"),
    ("client_secret={}", "a&b"), ("MYSQL_PWD={}", "x"), ("STRIPE_SECRET_KEY={}", "whsec"),
    ('token: "{}', "never closed"),
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS, ids=lambda s: s[:12])
def test_a_key_of_a_known_provider_goes(secret: str) -> None:
    assert redact(f"used {secret} today") == (f"used {MARK} today", 1)


@pytest.mark.parametrize(("place", "secret"), PLACED, ids=lambda p: p[:30])
def test_a_secret_goes_because_of_where_it_is(place: str, secret: str) -> None:
    text, number = redact(place.format(secret))
    assert number == 1
    assert secret not in text
    assert MARK in text
    if not place.startswith("sk-"):
        assert text == place.format(MARK)


@pytest.mark.parametrize(
    "text",
    ["commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "sha256 " + "ab12" * 16,
     "11111111-2222-4333-8444-555555555555", "disk-d41d8cd98f00b204e9800998ecf8427e",
     "max_tokens=4096", "tokens: 12,345", "TOKEN_LIMIT=100", "token = tokenizer.encode(x)",
     "password: str", "password=password", "password=os.environ['DB']", "TOKEN=$TOKEN",
     "API_KEY=<your key>", "API_KEY=${KEY}", "password=getpass()", "token=self.token,",
     "the token expired", "secretary: Mr. X", "--token to pass", "passwordless=true",
     "bearer authentication-middleware", "task-oriented-and-risk-averse-planning-ahead",
     "https://example.com:8080/a@b", "git@github.com:a/b.git", "PWD=/home/dev", "reset token: see",
     "-----BEGIN PRIVATE KEY----- starts such a file", "secret_name=db", "password: ********",
     "forgot password? ask the admin", "Key decisions: none", "step 3 of 8 done", ""],
)  # fmt: skip
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == (text, 0)


@pytest.mark.parametrize(
    "text", ["claude in shop ({}) needs you", "segue resume {}", "git merge segue/{}", "{} failed"]
)
def test_an_id_of_segue_s_own_stays_whatever_its_digits(text: str) -> None:
    """One in forty looked like a password: a notice said `segue resume [redacted]`."""
    draws = random.Random(7)
    for kind in ("run", "task", "h"):
        for _ in range(200):
            said = text.format(f"{kind}-{draws.getrandbits(32):08x}")
            assert redact(said) == (said, 0)


@pytest.mark.parametrize("secret", ["é1" * 60, "пароль7" * 20, "密" * 30 + "x9"])
@pytest.mark.parametrize("place", ["password: {}", "пароль: {}", "senha é {}", "pin: {}"])
def test_no_character_is_cut_in_two(place: str, secret: str) -> None:
    text, _ = redact(place.format(secret))
    assert redact(text)[0] == text


def test_a_private_key_without_its_end_goes_and_the_text_after_it_stays() -> None:
    begin, first, second, _ = KEY.split("\n")
    assert redact(f"a\n{begin}\n{first}\n{second}\nThen it ran.") == (f"a\n{MARK}\nThen it ran.", 1)
    assert A40 not in redact(f"+{begin}\n+{first}\n+{second}\n")[0]
    assert A40 not in redact(KEY.replace("\n", "\\n"))[0]


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from([*SECRETS, *(p.format(s) for p, s in PLACED), MARK, "password=", "token: ", '"',
                     "'", "--token ", "://a:", "@", "&", "=", "\n", "\\", "\ud800"]),
)  # fmt: skip
ANYTHING = st.lists(PIECES, max_size=8).map("".join)


@settings(max_examples=300)
@given(ANYTHING)
def test_twice_is_as_once(text: str) -> None:
    once, _ = redact(text)
    assert redact(once) == (once, 0)


@settings(max_examples=300)
@given(ANYTHING, st.sampled_from(SECRETS), ANYTHING)
def test_no_key_survives_wherever_it_is(before: str, secret: str, after: str) -> None:
    text, number = redact(before + secret + after)
    assert secret not in text
    assert number


@pytest.mark.parametrize(
    "unit",
    ["password", "token=", "sk-ant-", "-----BEGIN PRIVATE KEY-----\n", "a", "a.b://c:", "bearer ",
     "PASSWORD=x ", "--token abc123 ", 'password: "', "eyJaaaaaaaa.", "é"],
)  # fmt: skip
def test_four_times_the_text_takes_no_more_than_its_share_of_time(unit: str) -> None:
    def cost(chars: int) -> float:
        start = time.process_time()
        redact(unit * (chars // len(unit)))
        return time.process_time() - start

    cost(100)
    small = max(cost(20_000), 0.005)
    assert cost(80_000) < 10 * small


@pytest.mark.parametrize("word", OVER_LINES)
def test_a_text_with_a_word_of_a_secret_over_lines_is_redacted_as_a_whole(word: str) -> None:
    assert any(hint in word for hint in HINTS)
    text = f"it says sk-ant-api03-{A40}-{A40}AA {word} there"
    assert redact_blocks(text) == redact(text)[0] != text
