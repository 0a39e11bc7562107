"""The verdict hangs on what is said and by whom, not on numbers, names, colours or width.

Each stop message of the corpus is changed in ways that must keep its verdict, and put where nobody
says it (quoted, in code, in a tool's output, denied), where it must lose it. The share that holds
is measured for each kind of change.
"""

import json
import random
import re
import textwrap
from collections.abc import Callable
from functools import cache

import pytest
from conftest import lines
from msgspec import Struct
from support.hostile.planting import STREAMS, judge, planted_run

from segue.agents.ending import Channel
from segue.core.stops.types import Stop

KEPT = 0.97
LOST = 0.98
SHOWN = 12  # examples in a failure's message


class Case(Struct, frozen=True):
    """A message of the corpus whose verdict is right, and its telling line."""

    id: str
    label: str
    agent: str
    channel: Channel
    exit_code: int | None
    text: str
    sentence: str

    @property
    def is_plain(self) -> bool:
        """Words on a screen, not records."""
        return not re.search(r'^\W{0,3}\{\s*$|^(?:\[[^\]]+\] )*\{"', self.text, re.M)

    @property
    def on_screen(self) -> bool:
        return self.is_plain and self.channel in ("tui", "stdout", "stderr")


Change = Callable[[Case, random.Random], str | None]  # None: there is nothing to change

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_MARKS = re.compile(r"^[\s─-▟⏺●■✕✖✗❌🛑🚫⛔⎿•⚠✦›❯>*$\ufe0f]+|[\s─-▟]+$")


def _sentence(text: str, stop: Stop) -> str:
    """The line that made the verdict, without what is drawn around it."""
    quote = next((e.quote for e in stop.evidence if not e.rule.startswith("exit.")), "")
    if any(e.rule.startswith("structure.") for e in stop.evidence[:1]):
        said = getattr(stop.details, "message", "")
        return "" if said.endswith("…") else said
    start = quote.removesuffix("…")[:24].casefold()
    for line in _COLOURS.sub("", text).splitlines():
        line = " ".join(_MARKS.sub("", line).split())
        if start and start in line.casefold() and len(line) <= 400:
            return line
    return "" if quote.endswith("…") else quote


@cache
def cases() -> tuple[Case, ...]:
    found = []
    for record in lines("stops.jsonl"):
        if record["label"] == "none":
            continue
        fields = {k: record[k] for k in ("id", "label", "agent", "channel", "exit_code", "text")}
        stop = judge(
            (record["channel"], record["text"]),
            agent=record["agent"],
            exit_code=record["exit_code"],
        )
        if stop.reason.value == record["label"]:
            found.append(Case(**fields, sentence=_sentence(record["text"], stop)))
    assert len(found) > 400
    return tuple(found)


def measure(
    name: str, change: Change, said: Callable[[Case, str], str], wanted: Callable[[Case], str]
) -> tuple[float, str]:
    """The share of changed messages with the wanted verdict, and a report with examples."""
    done, wrong = 0, []
    for case in cases():
        text = change(case, random.Random(f"{name} {case.id}"))
        if text is None or text == case.text:
            continue
        done += 1
        got = said(case, text)
        if got != wanted(case):
            wrong.append(f"  {case.id} {case.channel}: {got}, not {wanted(case)}: {text[-400:]!r}")
    assert done, f"{name} changed nothing"
    share = 1 - len(wrong) / done
    report = f"{name}: {share:.4f} of {done} hold ({len(wrong)} do not)"
    print(f"\n{report}")
    return share, "\n".join([report, *wrong[:SHOWN]])


# --- what must keep the verdict ---------------------------------------------------------------

_STAYS = re.compile(  # statuses, codes, exits, dates, versions, lengths of plan windows
    r"(?i)(?:code|exit(?:ed)?|signal|status|errno)\W{0,4}(?:with )?(?:code |status )?-?\d+"
    r"|\(\d{4}\)|\b20[12]\d(?=[-/ ,.)]|$)|(?<=, )20[12]\d\b"
)
_REQUEST = re.compile(r"\breq_[0-9A-Za-z]{6,}")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_EPOCH = re.compile(r"(?<![\w.,-])1[67]\d{8}(?:\d{3})?(?![\w.,-]*\d)")
_NUMBER = re.compile(
    r"(?<![\w.,/:-])\d{1,3}(?:,\d{3})+(?![\w.,-]*\d)|(?<![\w.,/:-])\d{4,}(?![\w.-]*\d)"
)
_PERCENT = re.compile(r"(?<![\d.])[1-9]\d?(?:\.\d+)?(?= ?%)")


def numbers(case: Case, rng: random.Random) -> str | None:
    """Others of the same order: all grow by one factor, so what was larger stays larger."""
    grow = rng.uniform(1.05, 1.9)

    def number(match: re.Match[str]) -> str:
        value = round(int(match[0].replace(",", "")) * grow)
        return f"{value:,}" if "," in match[0] else str(value)

    def change(part: str) -> str:
        part = _REQUEST.sub(lambda m: "req_" + _letters(rng, len(m[0]) - 4), part)
        part = _UUID.sub(
            lambda m: re.sub(r"[0-9a-f]", lambda _: rng.choice("0123456789abcdef"), m[0]), part
        )
        part = _PERCENT.sub(lambda m: str(rng.randint(1, 99)), part)
        kept = iter(_EPOCH.findall(part))
        pieces = [_NUMBER.sub(number, piece) for piece in _EPOCH.split(part)]
        days = rng.randint(1, 400) * 86_400
        return pieces[0] + "".join(
            str(int(e) + days * (1 if len(e) == 10 else 1000)) + p
            for e, p in zip(kept, pieces[1:], strict=True)
        )

    stay = iter(_STAYS.findall(case.text))
    pieces = _STAYS.split(case.text)
    return change(pieces[0]) + "".join(
        kept + change(piece) for kept, piece in zip(stay, pieces[1:], strict=True)
    )


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("abcdefghkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789", k=count))


_CLOCK = re.compile(r"\b(?:1[0-2]|[1-9])(?P<minute>:\d\d)?(?P<gap> ?)(?P<half>am|pm|AM|PM)\b")
_ZONE = re.compile(r"\((?:[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+|UTC)\)")
_ZONES = ("(Asia/Tokyo)", "(Europe/Paris)", "(America/New_York)", "(UTC)", "(Australia/Sydney)")
_MONTH = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAY = re.compile(rf"\b(?:{'|'.join(_MONTH)}) \d{{1,2}}\b(?!:)")
_ISO = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)([T ])(\d\d):(\d\d):(\d\d)")


def times(case: Case, rng: random.Random) -> str | None:
    def clock(match: re.Match[str]) -> str:
        minute = f":{rng.randrange(60):02d}" if match["minute"] else ""
        half = rng.choice(("am", "pm"))
        half = half.upper() if match["half"].isupper() else half
        return f"{rng.randint(1, 12)}{minute}{match['gap']}{half}"

    def stamp(match: re.Match[str]) -> str:
        date = f"{match[1]}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        return f"{date}{match[4]}{rng.randrange(24):02d}:{rng.randrange(60):02d}:{match[7]}"

    text = _ISO.sub(stamp, _CLOCK.sub(clock, case.text))
    text = _DAY.sub(lambda _: f"{rng.choice(_MONTH)} {rng.randint(1, 28)}", text)
    return _ZONE.sub(lambda _: rng.choice(_ZONES), text)


_MODEL = re.compile(
    r"\b(?:claude|gpt|gemini|deepseek|qwen\d?|llama|kimi|glm|mistral|o\d)-(?!code|cli|api|engineer)"
    r"[a-z0-9][\w.-]*[a-z0-9]\b"
)
_MODELS = (
    "claude-verse-7-2",
    "gpt-7.1-max",
    "gemini-4.0-ultra",
    "qwen9-coder-480b",
    "acme-large-2",
)
_FAMILY = re.compile(r"\b(?:Opus|Sonnet|Haiku|Fable)(?: \d[\d.]*)?\b")
_ORGANISATION = re.compile(r"\borg-[\w.-]*\w")


def names(case: Case, rng: random.Random) -> str | None:
    text = _MODEL.sub(lambda _: rng.choice(_MODELS), case.text)
    text = _FAMILY.sub(lambda _: rng.choice(("Verse 2", "Saga", "Sonnet 9.1", "Opus 12")), text)
    return _ORGANISATION.sub(lambda _: f"org-{_letters(rng, 20)}", text)


def wrapped(width: int) -> Change:
    """As a client breaks its lines, the rest below the first word."""

    def change(case: Case, _: random.Random) -> str | None:
        if case.channel != "tui" or not case.is_plain:
            return None
        return "\n".join(_wrap(line, width) for line in case.text.split("\n"))

    return change


def _wrap(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    mark = re.match(r"\s*(?:[⏺●■✕⎿•✦]\s+)?", line)
    indent = " " * len(mark[0]) if mark else ""
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    )


def coloured(case: Case, rng: random.Random) -> str | None:
    if not case.on_screen:
        return None
    codes = (
        "\x1b[31m{}\x1b[39m",
        "\x1b[1m\x1b[38;5;203m{}\x1b[0m",
        "\x1b[38;2;255;107;128m{}\x1b[0m",
    )
    code = rng.choice(codes)
    return "\n".join(code.format(line) if line else line for line in case.text.split("\n"))


def boxed(case: Case, rng: random.Random) -> str | None:
    if not case.on_screen or re.search(r"[─-▟]", case.text):
        return None
    inner = rng.choice((70, 90, 110))
    rows = [row for line in case.text.split("\n") for row in _wrap(line, inner).split("\n")]
    sides = [f"│ {row:<{inner}} │" for row in rows]
    return "\n".join([f"╭{'─' * (inner + 2)}╮", *sides, f"╰{'─' * (inner + 2)}╯"])


def bulleted(bullet: str) -> Change:
    def change(case: Case, _: random.Random) -> str | None:
        one_piece = "\n\n" not in case.text.strip() and re.match(r"\w", case.text.strip())
        if case.channel != "tui" or not case.is_plain or not one_piece:
            return None
        if bullet == "■" and case.label == "completed":
            return None  # the bullet of errors
        return f"{bullet} {case.text.strip()}"

    return change


def padded(case: Case, rng: random.Random) -> str | None:
    return "\n".join(line + " " * rng.randint(1, 40) for line in case.text.split("\n"))


def with_crlf(case: Case, _: random.Random) -> str | None:
    return "\r\n".join([*case.text.split("\n"), ""])


def typographic(case: Case, _: random.Random) -> str | None:
    if not case.is_plain:
        return None
    text = re.sub(r"(?<=[A-Za-z])'(?=[a-z])", "’", case.text)
    return text if "{" in text else re.sub(r'"([^"\n]+)"', r"“\1”", text)


KEEPING: dict[str, Change] = {
    "other numbers": numbers,
    "other times and zones": times,
    "other models and organisations": names,
    "broken at 60 columns": wrapped(60),
    "broken at 100 columns": wrapped(100),
    "colours": coloured,
    "a box": boxed,
    "bullet ⏺": bulleted("⏺"),
    "bullet ⎿": bulleted("  ⎿ "),
    "bullet ■": bulleted("■"),
    "spaces at the ends": padded,
    "CRLF": with_crlf,
    "typographic quotes": typographic,
}


@pytest.mark.parametrize("name", KEEPING)
def test_the_verdict_stays(name: str) -> None:
    def said(case: Case, text: str) -> str:
        return judge((case.channel, text), agent=case.agent, exit_code=case.exit_code).reason.value

    share, report = measure(name, KEEPING[name], said, lambda case: case.label)
    assert share >= KEPT, report


# --- what must lose it ------------------------------------------------------------------------


def prose(*forms: str, width: int = 0) -> Change:
    """The telling line inside what somebody says about it; with a width, as a terminal shows it,
    and then only sentences, not the bodies of answers."""

    def change(case: Case, rng: random.Random) -> str | None:
        if not case.sentence or (width and "{" in case.sentence):
            return None
        text = rng.choice(forms).replace("…", case.sentence)
        return textwrap.fill(text, width, break_on_hyphens=False) if width else text

    return change


_DIFF = """diff --git a/docs/limits.md b/docs/limits.md
index 83db48f..bf2a4e1 100644
--- a/docs/limits.md
+++ b/docs/limits.md
@@ -10,6 +10,7 @@ What the client prints
"""


def in_diff(sign: str) -> Change:
    def change(case: Case, _: random.Random) -> str | None:
        changed = "".join(f"{sign}{line}\n" for line in case.text.split("\n"))
        return f"{_DIFF} It then waits.\n{changed} It goes on after that.\n"

    return change


def in_source(*forms: str, quote: Callable[[str], str]) -> Change:
    def change(case: Case, rng: random.Random) -> str | None:
        if not case.sentence:
            return None
        return rng.choice(forms).replace("…", quote(case.sentence))

    return change


def _python(text: str) -> str:
    return repr(text)


def _script(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_PYTHON = (
    "LIMIT_MESSAGE = …\n",
    "def test_limit() -> None:\n    assert classify(…).reason == 'rate_limit'\n",
    "MESSAGES = [\n    …,\n    'Something else',\n]\n",
    "if … in output:\n    raise LimitReached(…)\n",
)
_SCRIPT = (
    "const message = …;\n",
    "if (line.includes(…)) {\n  throw new Error(…);\n}\n",
    "expect(classify(…)).toBe('limit');\n",
    "export const MESSAGES = {\n  limit: …,\n  other: 'Something else',\n};\n",
)
_SHELL = (
    'if grep -q … "$log"; then\n  sleep 60\nfi\n',
    "echo … >&2\nexit 1\n",
    'MESSAGE=…\nprintf "%s\\n" "$MESSAGE"\n',
)


def in_table(case: Case, _: random.Random) -> str | None:
    if not case.sentence:
        return None
    cell = case.sentence.replace("|", "\\|")
    rows = f"| {cell} | the plan runs out |\n| Something else | never |\n"
    return f"These are printed:\n\n| Message | When |\n|---|---|\n{rows}"


def in_list(case: Case, rng: random.Random) -> str | None:
    if not case.sentence:
        return None
    first, second = rng.choice((("-", "-"), ("*", "*"), ("1.", "2."), ("- `", "- `")))
    end = "`" if first.endswith("`") else ""
    gap = "" if end else " "
    items = f"{first}{gap}{case.sentence}{end}\n{second}{gap}Something else{end}\n"
    return f"The messages it knows:\n\n{items}"


_DENIALS = tuple(
    (re.compile(form), to)
    for form, to in (
        (r"\b([Yy]ou)(?:'ve|’ve| have) (hit|reached|exceeded|exhausted|used)\b", r"\1 have not \2"),
        (r"\b([Yy]ou) (hit|reached|exceeded)\b", r"\1 have not \2"),
        (r"\b([Yy]ou)(?:'re|’re| are) out of\b", r"\1 are not out of"),
        (r"(?i)\b(limit|quota|budget) (reached|exceeded|exhausted)\b", r"\1 not \2"),
        (
            r"(?i)\b(limit|quota|budget) has been (reached|exceeded|exhausted)\b",
            r"\1 has not been \2",
        ),
        (r"\b(is|are|was|were) (too|out of|overloaded|filtered|longer)\b", r"\1 not \2"),
        (r"\b(has|have) (been|expired|refused|reached|exceeded|hit)\b", r"\1 not \2"),
        (r"\bexceeds\b", "does not exceed"),
        (r"\bran out of\b", "did not run out of"),
        (r"\btimed out\b", "did not time out"),
        (r"\binterrupted by (?:the )?user\b", "was not interrupted by the user"),
    )
)


def denied(case: Case, _: random.Random) -> str | None:
    """The first clause with a "not" in it, where it is one that a person could say."""
    clause = re.split(r"(?<=\w)[.!|]|\s[·∙-]\s|: ", case.sentence)[0]
    if not case.is_plain or re.search(r"[{\[<]|\b[45]\d\d\b|(?i:error|exception|fail)", clause):
        return None
    for form, to in _DENIALS:
        said, count = form.subn(to, clause, count=1)
        if count:
            return f"{said}."
    return None


LOSING: dict[str, Change] = {
    "quoted: the docs say": prose('The docs say that "…" is shown when the plan runs out.'),
    "quoted: a test for": prose("I added a test for the message `…`."),
    "quoted: if you see": prose(
        'If you see "…", wait for the reset and run it again.',
        'Searching for "…" in the code now.',
        "The client prints `…` and exits with code 1.",
    ),
    "quoted at the start": prose(
        '"…" is what the client prints in that case.',
        "`…` is shown when the plan runs out.",
        "“…” means that the plan ran out.",
    ),
    "quoted in a wrapped paragraph": prose(
        "I looked at how the client behaves. When the plan runs out, the server answers with an "
        'error and the client shows "…" below the prompt, which the new test covers as well. '
        "Nothing else was changed in this file.",
        width=80,
    ),
    "added lines of a diff": in_diff("+"),
    "removed lines of a diff": in_diff("-"),
    "Python source": in_source(*_PYTHON, quote=_python),
    "JavaScript source": in_source(*_SCRIPT, quote=_script),
    "shell source": in_source(*_SHELL, quote=_shell),
    "a markdown table": in_table,
    "a markdown list": in_list,
    "denied as a whole": prose(
        "This is not the message “…”, it only looks like it.",
        'It did not print "…".',
        "The log does not contain `…`.",
        "There is no “…” in the output.",
    ),
    "denied in its own words": denied,
}


@pytest.mark.parametrize("name", LOSING)
def test_the_verdict_is_lost(name: str) -> None:
    channels: tuple[Channel, ...] = ("stdout", "tui", "transcript-record")

    def said(case: Case, text: str) -> str:
        channel = random.Random(f"{name} {case.id} channel").choice(channels)
        return judge((channel, text), agent=case.agent).reason.value

    share, report = measure(name, LOSING[name], said, lambda _: "unknown")
    assert share >= LOST, report


@pytest.mark.parametrize("agent", STREAMS)
def test_a_tool_result_is_not_a_stop(agent: str) -> None:
    def said(case: Case, text: str) -> str:
        run = planted_run(agent, text)
        return judge(("stdout", run["stdout"]), agent=agent, exit_code=0).reason.value

    def change(case: Case, _: random.Random) -> str:
        return f"{case.text}\n"

    share, report = measure(f"tool result of {agent}", change, said, lambda _: "completed")
    assert share >= LOST, report


@pytest.mark.parametrize("channel", ["stdout", "tui", "transcript-record"])
@pytest.mark.parametrize(
    "text",
    [
        "You have not hit your limit.",
        "You haven't reached your weekly limit yet.",
        "No rate limit was reached.",
        "no rate limit was reached",
        "Rate limit not reached.",
        "The rate limit was never exceeded.",
        "Usage limit not exceeded.",
        "Neither the usage limit nor the weekly limit was reached.",
        "The run ended without hitting the rate limit.",
        "This was not a rate limit error.",
        "The quota has not been exhausted.",
        "The prompt is not too long.",
        "The context window is not full.",
        "We did not run out of context.",
        "The API is not overloaded.",
        "There were no overloaded errors.",
        "Your credit balance is not too low.",
        "The session has not expired.",
        "The request did not time out.",
        "The request was not interrupted by the user.",
    ],
)
def test_a_denial_is_not_a_stop(text: str, channel: Channel) -> None:
    assert judge((channel, text), agent="claude").reason.value == "unknown"
