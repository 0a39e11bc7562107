"""Histories to measure on:
`python -m bench.support.histories FOLDER --megabytes 1024 --files 1000`.

Writes a Claude home and a Codex home like those of a busy user, and knows what it wrote: the
tokens per day and model that a correct reader must find. The same seed gives the same bytes.

The shapes are those of real transcripts (Claude Code 2.0 and 2.1.3xx, Codex 0.60 and 0.166) with
what makes counting hard: a record per content block, usage that grows within a message, records
carried over into the next session, usage of sub-agents in three places, forks that copy their
parent, repeated and synthetic token counts, tool results that quote transcripts.

Left out, because ccusage, the reference, then counts what nobody means: messages without a
request id, tool calls with `"id":null`, forks whose first counts are less than a second apart.
"""

import argparse
import base64
import json
import math
import random
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path

FIRST_MS = int(datetime(2026, 8, 1, tzinfo=UTC).timestamp() * 1000)
DAYS = 100
DAY_MS = 86_400_000
MIN_FILE = 4_000
TEXT_SIZE = 4_000_000  # of filler; the longest line needs a quarter of it
LONG_LINE = 990_000
CHUNK = 1 << 20
WINDOW = 165_000  # tokens at which both agents compact
FORKABLE = 2_000_000  # bytes of a Codex session that is kept in memory for a fork

CLAUDE_MODELS = (b"claude-opus-4-5", b"claude-sonnet-4-5", b"claude-opus-5-5")
SMALL_MODEL = b"claude-haiku-4-5"
CODEX_MODELS = (b"gpt-5.5", b"gpt-5.2-codex", b"gpt-5.2")
SPOKEN = (
    "session record parser token window reader offset writer cache lookup budget policy resume "
    "value config server client thread buffer handle result import return assert yield class self "
    "path line total usage model agent error retry limit reset until before after should never"
)
WORDS = SPOKEN.split()


@dataclass
class Tokens:
    """As ccusage reports them: `input` without what was cached, `reasoning` part of `output`."""

    input: int = 0
    output: int = 0
    cache_creation: int = 0
    cache_read: int = 0
    reasoning: int = 0

    def add(self, other: "Tokens") -> None:
        self.input += other.input
        self.output += other.output
        self.cache_creation += other.cache_creation
        self.cache_read += other.cache_read
        self.reasoning += other.reasoning


@dataclass
class Totals:
    """Tokens per UTC day and model."""

    by_day_and_model: dict[tuple[str, str], Tokens] = field(default_factory=dict)

    def add(self, at_ms: int, model: bytes, tokens: Tokens) -> None:
        key = day(at_ms).decode(), model.decode()
        self.by_day_and_model.setdefault(key, Tokens()).add(tokens)

    def sum(self) -> Tokens:
        total = Tokens()
        for tokens in self.by_day_and_model.values():
            total.add(tokens)
        return total


@dataclass(frozen=True)
class Histories:
    claude_home: Path
    codex_home: Path
    files: int
    size_bytes: int
    claude: Totals
    codex: Totals


# --- parts of records -------------------------------------------------------------------------


class Text:
    """Filler that is already escaped for JSON. Built once; pieces are whole lines of it."""

    def __init__(self, pick: random.Random) -> None:
        lines: list[bytes] = []
        self.starts = [0]
        while self.starts[-1] < TEXT_SIZE:
            lines.append(json.dumps(self._line(pick) + "\n", ensure_ascii=False)[1:-1].encode())
            self.starts.append(self.starts[-1] + len(lines[-1]))
        self.text = b"".join(lines)
        self.secret = base64.b64encode(pick.randbytes(200_000))  # encrypted reasoning

    def cut(self, pick: random.Random, size: int) -> bytes:
        start = int(pick.random() * (TEXT_SIZE - LONG_LINE))
        first = bisect_right(self.starts, start)
        last = max(first + 1, bisect_right(self.starts, start + size))
        return self.text[self.starts[first] : self.starts[last]]

    @staticmethod
    def _line(pick: random.Random) -> str:
        words = pick.choices(WORDS, k=pick.randrange(3, 12))
        number = pick.randrange(9999)
        kind = pick.random()
        if kind < 0.45:
            return "    " * pick.randrange(4) + f"{words[0]}.{words[1]}({', '.join(words[2:])})"
        if kind < 0.6:
            return f'{words[0]} = {{"{words[1]}": "{words[2]}", "id": {number}}}  # {words[0]}'
        if kind < 0.75:
            return f"src/{words[0]}/{words[1]}.py:{number}: {' '.join(words[2:])}"
        if kind < 0.85:
            return f"\x1b[32m✓\x1b[0m {' '.join(words)} — “{words[0]}” …"
        if kind < 0.9:
            return f'{{"type":"assistant","message":{{"usage":{{"input_tokens":{number}}}}}}}'
        if kind < 0.92:
            return f'{{"type":"event_msg","payload":{{"type":"token_count","total":{number}}}}}'
        return ""


def length(pick: random.Random, typical: float, spread: float = 1.2) -> int:
    """Log-normal with `typical` as its median."""
    return min(int(typical * math.exp(pick.gauss(0.0, spread))), 200_000)


def output_length(pick: random.Random, typical: float) -> int:
    """Of what a tool prints: now and then as much as a line can hold."""
    return LONG_LINE if pick.random() < 1 / 2_000 else length(pick, typical, 1.3)


def head(text: bytes, size: int) -> bytes:
    """The first whole lines of a piece of filler."""
    return text[:size].rpartition(b"\\n")[0]


def uuid(pick: random.Random) -> bytes:
    digits = b"%032x" % pick.getrandbits(128)
    return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_days: dict[int, bytes] = {}


def day(at_ms: int) -> bytes:
    number = at_ms // DAY_MS
    if number not in _days:
        _days[number] = date.fromordinal(719_163 + number).isoformat().encode()
    return _days[number]


def stamp(at_ms: int) -> bytes:
    seconds, ms = divmod(at_ms % DAY_MS, 1000)
    minutes, seconds = divmod(seconds, 60)
    return b"%bT%02d:%02d:%02d.%03dZ" % (day(at_ms), minutes // 60, minutes % 60, seconds, ms)


class File:
    """A file being written in large pieces. `kept` are its last lines."""

    def __init__(self, path: Path, keep: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._lines: list[bytes] = []
        self._waiting = 0
        self.kept: deque[bytes] = deque(maxlen=keep)
        self.size = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self.kept.append(line)
        self.size += len(line)
        self._waiting += len(line)
        if self._waiting > CHUNK:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        self._file.write(b"".join(self._lines))
        self._lines.clear()
        self._waiting = 0


# --- Claude Code ------------------------------------------------------------------------------

# New and old sessions differ in key order, in the fields of usage and in when usage is final.
NEW_RECORD = b'{"parentUuid":"%b","isSidechain":%b,%b,"uuid":"%b","timestamp":"%b",%b}\n'
OLD_RECORD = b'{"parentUuid":"%b","isSidechain":%b,%b,%b,"uuid":"%b","timestamp":"%b"}\n'
SESSION = (
    b'"userType":"external","entrypoint":"cli","cwd":"/home/dev/%b","sessionId":"%b",'
    b'"version":"%b","gitBranch":"main"'
)
MESSAGE = (
    b'"message":{"id":"%b","type":"message","role":"assistant","model":"%b","content":[%b],'
    b'"stop_reason":%b,"stop_sequence":null,"usage":%b},"requestId":"%b","type":"assistant"'
)
NEW_USAGE = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,'
    b'"output_tokens":%d,"output_tokens_details":{"thinking_tokens":0},"server_tool_use":'
    b'{"web_search_requests":0,"web_fetch_requests":0},"service_tier":"standard","cache_creation":'
    b'{"ephemeral_1h_input_tokens":%d,"ephemeral_5m_input_tokens":%d},"inference_geo":"",'
    b'"iterations":[],"speed":"standard","fallback_credit":null}'
)
OLD_USAGE = (
    b'{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,'
    b'"output_tokens":%d,"cache_creation":{"ephemeral_1h_input_tokens":%d,'
    b'"ephemeral_5m_input_tokens":%d},"service_tier":"standard"}'
)
TOOL_USE = b'{"type":"tool_use","id":"%b","name":"%b","input":{%b}}'
TOOL_RESULT = (
    b'"type":"user","message":{"role":"user","content":[{"tool_use_id":"%b","type":"tool_result",'
    b'"content":"%b","is_error":false}]},"toolUseResult":%b'
)
API_ERROR = (
    b'"type":"assistant","message":{"id":"%b","model":"<synthetic>","role":"assistant",'
    b'"stop_reason":"stop_sequence","type":"message","usage":{"input_tokens":0,"output_tokens":0,'
    b'"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"service_tier":null,'
    b'"speed":null},"content":[{"type":"text","text":"API Error: 529 Overloaded."}]},'
    b'"requestId":"%b","error":"server_error","isApiErrorMessage":true,"apiErrorStatus":529'
)
BOUNDARY = (
    b'"type":"system","subtype":"compact_boundary","content":"Conversation compacted",'
    b'"level":"info","compactMetadata":{"trigger":"auto","preTokens":%d,"postTokens":%d}'
)
SUMMARY = (
    b'"type":"user","message":{"role":"user","content":"This session is being continued from a '
    b'previous conversation.\\n%b"},"isCompactSummary":true'
)
COST = (
    b'{"type":"cost-state","sessionId":"%b","totalCostUSD":1.25,"modelUsage":{"%b":'
    b'{"inputTokens":%d,"outputTokens":%d,"cacheReadInputTokens":%d,'
    b'"cacheCreationInputTokens":%d,"costUSD":1.25}},"hasUnknownModelCost":false}\n'
)


class ClaudeSession:
    """One transcript, main or of a sub-agent, and the calls in it."""

    def __init__(
        self,
        path: Path,
        pick: random.Random,
        text: Text,
        totals: Totals,
        *,
        at_ms: int,
        session: bytes,
        old: bool,
        agent: bytes = b"",
    ) -> None:
        self.path, self.pick, self.text, self.totals = path, pick, text, totals
        self.at_ms, self.session, self.old, self.agent = at_ms, session, old, agent
        self.file = File(path, keep=60)
        self.model = SMALL_MODEL if agent else pick.choice(CLAUDE_MODELS)
        self.context = pick.randrange(14_000, 24_000)
        self.fresh = 3_000  # tokens that the next request adds to the context
        self.last = uuid(pick)
        self.prompt = b""
        self.first_reply = b""
        self.spent = Tokens()
        version = b"2.0.76" if old else b"2.1.325"
        self.about = SESSION % (path.parent.name.encode()[-12:], session, version)
        if agent:
            self.about = b'"agentId":"%b",' % agent + self.about

    def run(self, size: int, carried: "ClaudeSession | None", helpers: list[int]) -> None:
        """Writes about `size` bytes; `helpers` are the sizes of its sub-agents' transcripts."""
        if carried:  # resumed under a new id: the records stay as they were
            for line in list(carried.file.kept):
                self.file.add(line.replace(carried.session, self.session))
        self._attachments(size // 8)
        while self.file.size < size or helpers:
            self._turn(size, helpers)
        if not self.agent:
            self.file.add(
                COST
                % (
                    self.session,
                    self.model,
                    self.spent.input,
                    self.spent.output,
                    self.spent.cache_read,
                    self.spent.cache_creation,
                )
            )
        self.file.close()

    def _record(self, body: bytes) -> None:
        self.at_ms += self.pick.randrange(3, 900)
        mine = uuid(self.pick)
        side = b"true" if self.agent else b"false"
        time_ = stamp(self.at_ms)
        if self.old:
            line = OLD_RECORD % (self.last, side, self.about, body, mine, time_)
        else:
            line = NEW_RECORD % (self.last, side, body, mine, time_, self.about)
        self.last = mine
        self.file.add(line)

    def _attachments(self, size: int) -> None:
        kinds = (b"environment", b"model", b"skill_listing", b"date", b"prompt_snapshot")
        for kind in kinds:
            long = kind in (b"skill_listing", b"prompt_snapshot")
            content = self.text.cut(self.pick, min(size // 2, 60_000) if long else 80)
            self._record(
                b'"attachment":{"type":"%b","content":"%b"},"type":"attachment"' % (kind, content)
            )

    def _turn(self, size: int, helpers: list[int]) -> None:
        pick = self.pick
        self.at_ms += int(pick.expovariate(1 / 400_000)) + 1_000
        self.prompt = self.text.cut(pick, length(pick, 300))
        body = b'"promptId":"%b","type":"user","message":{"role":"user","content":"%b"}'
        self._record(body % (uuid(pick), self.prompt))
        for _ in range(min(int(pick.expovariate(1 / 9)) + 1, 60)):
            if pick.random() < 0.01:
                self._record(API_ERROR % (uuid(pick), b"req_%024x" % pick.getrandbits(96)))
            helper = helpers.pop() if helpers and pick.random() < 0.5 else 0
            self._request(helper)
            if self.context > WINDOW:
                self._compact()
            if self.file.size >= size and not helpers:
                break
        said = b'{"type":"text","text":"%b"}' % self.text.cut(pick, length(pick, 500))
        self._message([said], b'"end_turn"')
        if not self.agent:
            self.file.add(
                b'{"type":"last-prompt","lastPrompt":"%b","leafUuid":"%b","sessionId":"%b"}\n'
                % (head(self.prompt, 200), self.last, self.session)
            )
        if pick.random() < 0.05:
            self.model = SMALL_MODEL if self.agent else pick.choice(CLAUDE_MODELS)

    def _request(self, helper: int) -> None:
        """A reply with tool calls, and their results."""
        pick = self.pick
        blocks: list[bytes] = []
        if pick.random() < 0.4:
            thought = self.text.cut(pick, length(pick, 400))
            signature = self.text.secret[: pick.randrange(200, 900)]
            blocks.append(
                b'{"type":"thinking","thinking":"%b","signature":"%b"}' % (thought, signature)
            )
        if pick.random() < 0.5:
            blocks.append(b'{"type":"text","text":"%b"}' % self.text.cut(pick, length(pick, 150)))
        calls: list[tuple[bytes, bytes]] = []
        for _ in range(pick.choice((1, 1, 1, 2, 3))):
            call = b"toolu_%024x" % pick.getrandbits(96)
            name, given, result = self._tool()
            calls.append((call, result))
            blocks.append(TOOL_USE % (call, name, given))
        task = b"toolu_%024x" % pick.getrandbits(96)
        if helper:
            blocks.append(TOOL_USE % (task, b"Agent", b'"description":"look","prompt":"Look."'))
        self._message(blocks, b'"tool_use"')
        for call, result in calls:
            detail = b'{"stdout":"%b","stderr":"","interrupted":false}' % head(result, 3_000)
            self.fresh += min(len(result) // 4, 20_000)
            self._record(TOOL_RESULT % (call, result, detail))
        if helper:
            self._sub_agent(task, helper)

    def _tool(self) -> tuple[bytes, bytes, bytes]:
        """Name, input and result of a call."""
        pick, cut = self.pick, self.text.cut
        file = b'"file_path":"/home/dev/p/src/%b.py"' % pick.choice(WORDS).encode()
        kind = pick.random()
        if kind < 0.4:
            command = b'"command":"%b","timeout":null' % cut(pick, 80)
            return b"Bash", command, cut(pick, output_length(pick, 1_400))
        if kind < 0.65:
            return b"Read", file, cut(pick, length(pick, 4_200, 1.0))
        if kind < 0.85:
            given = b'"old_string":"%b","new_string":"%b"'
            given %= cut(pick, length(pick, 300)), cut(pick, length(pick, 400))
            return b"Edit", file + b"," + given, cut(pick, length(pick, 500))
        if kind < 0.9:
            return b"Write", file + b',"content":"%b"' % cut(pick, length(pick, 3_000)), b"Done.\\n"
        states = pick.choices((b"completed", b"in_progress", b"pending"), k=5)
        todos = b",".join(
            b'{"content":"%b","status":"%b","activeForm":"Working"}' % (cut(pick, 40), state)
            for state in states
        )
        return b"TodoWrite", b'"todos":[%b]' % todos, b"Todos have been modified.\\n"

    def _message(self, blocks: list[bytes], stop: bytes) -> None:
        """A record per block; in old sessions only the last has the final usage."""
        pick = self.pick
        tokens = Tokens(
            input=pick.randrange(1, 12),
            output=length(pick, 300, 1.0) + 2 * len(blocks),
            cache_creation=self.fresh,
            cache_read=self.context,
        )
        long = pick.choice((0, 0, self.fresh))  # cached for an hour
        name, request = b"msg_%024x" % pick.getrandbits(96), b"req_%024x" % pick.getrandbits(96)
        template = OLD_USAGE if self.old else NEW_USAGE
        times_ms: list[int] = []
        for number, block in enumerate(blocks, 1):
            final = number == len(blocks) or not self.old
            usage = template % (
                tokens.input,
                tokens.cache_creation,
                tokens.cache_read,
                tokens.output if final else number,
                long,
                self.fresh - long,
            )
            ended = stop if final else b"null"
            self._record(MESSAGE % (name, self.model, block, ended, usage, request))
            times_ms.append(self.at_ms)
        counted_ms = times_ms[-1] if self.old else times_ms[0]  # the largest; of equal the first
        self.totals.add(counted_ms, self.model, tokens)
        self.spent.add(tokens)
        self.context += self.fresh + tokens.output
        self.fresh = pick.randrange(20, 200)
        self.first_reply = self.first_reply or self.file.kept[-1]

    def _compact(self) -> None:
        after = self.pick.randrange(15_000, 30_000)
        self._record(BOUNDARY % (self.context, after))
        self._record(SUMMARY % self.text.cut(self.pick, length(self.pick, 6_000, 0.4)))
        self.context = after

    def _sub_agent(self, call: bytes, size: int) -> None:
        pick = self.pick
        name = b"a%016x" % pick.getrandbits(64)
        folder = self.path.with_suffix("") / "subagents"
        other = ClaudeSession(
            folder / f"agent-{name.decode()}.jsonl",
            pick,
            self.text,
            self.totals,
            at_ms=self.at_ms,
            session=self.session,
            old=self.old,
            agent=name,
        )
        other.run(size, None, [])
        if self.old:  # progress of a sub-agent: its record once more, wrapped
            body = b'"type":"progress","data":{"type":"agent_progress","message":%b}'
            self._record(body % other.first_reply.rstrip())
        meta = {"agentType": "Explore", "description": "look", "toolUseId": call.decode()}
        other.path.with_suffix(".meta.json").write_text(json.dumps(meta))
        self.at_ms = other.at_ms
        usage = (OLD_USAGE if self.old else NEW_USAGE) % (9, 900, 9_000, 90, 0, 900)
        report = self.text.cut(pick, length(pick, 1_500))
        detail = b'{"status":"completed","agentId":"%b","totalTokens":9999,"usage":%b}'
        self._record(TOOL_RESULT % (call, report, detail % (name, usage)))


def write_claude(home: Path, sizes: Iterator[int], pick: random.Random, text: Text) -> Totals:
    totals = Totals()
    before: ClaudeSession | None = None
    for size in sizes:
        helpers = list(islice(sizes, pick.choice((0,) * 8 + (1, 1, 3))))
        session = uuid(pick)
        slug = f"-home-dev-{pick.choice(WORDS)}-{pick.choice(WORDS)}"
        this = ClaudeSession(
            home / "projects" / slug / f"{session.decode()}.jsonl",
            pick,
            text,
            totals,
            at_ms=FIRST_MS + pick.randrange(DAYS * DAY_MS),
            session=session,
            old=pick.random() < 0.4,
        )
        carried = before if before and pick.random() < 0.12 else None
        this.run(size, carried, helpers)
        before = this
    return totals


# --- Codex ------------------------------------------------------------------------------------

LINE = b'{"timestamp":"%b","ordinal":%d,"type":"%b","payload":%b}\n'
LINE_STAMP = slice(14, 38)
META = (
    b'{"session_id":"%b","id":"%b",%b"timestamp":"%b","cwd":"/home/dev/p","originator":"codex_exec"'
    b',"cli_version":"%b","source":"exec","model_provider":"openai","base_instructions":'
    b'{"text":"%b"}}'
)
TURN = (
    b'{"turn_id":"%b","cwd":"/home/dev/p","approval_policy":"never","sandbox_policy":'
    b'{"type":"danger-full-access"},"model":"%b","effort":"high","summary":"none"}'
)
SETTINGS = b'{"type":"thread_settings_applied","thread_settings":{"model":"%b"}}'
USAGE = (
    b'{"input_tokens":%d,"cached_input_tokens":%d,"cache_write_input_tokens":%d,'
    b'"output_tokens":%d,"reasoning_output_tokens":%d,"total_tokens":%d}'
)
COUNT = (
    b'{"type":"token_count","info":{"total_token_usage":%b,"last_token_usage":%b,'
    b'"last_usage_includes_reasoning":false,"model_context_window":258400},"rate_limits":'
    b'{"limit_id":"codex","primary":{"used_percent":%d.0,"window_minutes":300,"resets_at":%d},'
    b'"secondary":null,"credits":null,"plan_type":"pro"}}'
)
LEDGER = (
    b'{"thread_id":"%b","turn_id":"%b","response_id":"resp_%024x","usage":%b,'
    b'"turn_token_usage":%b,"thread_token_usage":%b}'
)


@dataclass
class Spent:
    """Usage as Codex writes it: what was cached is part of the input."""

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    def add(self, other: "Spent") -> None:
        self.input += other.input
        self.cached += other.cached
        self.written += other.written
        self.output += other.output
        self.reasoning += other.reasoning

    def json(self, total: int = 0) -> bytes:
        return USAGE % (
            self.input,
            self.cached,
            self.written,
            self.output,
            self.reasoning,
            total or self.input + self.output,
        )

    def tokens(self) -> Tokens:
        plain = self.input - self.cached - self.written
        return Tokens(plain, self.output, self.written, self.cached, self.reasoning)


class CodexSession:
    def __init__(
        self, home: Path, pick: random.Random, text: Text, totals: Totals, at_ms: int
    ) -> None:
        self.pick, self.text, self.totals, self.at_ms = pick, text, totals, at_ms
        self.id = uuid(pick)
        name = stamp(at_ms)[:19].decode().replace(":", "-")
        folder = home / "sessions" / day(at_ms).decode().replace("-", "/")
        self.file = File(folder / f"rollout-{name}-{self.id.decode()}.jsonl", keep=2_000)
        self.model = pick.choice(CODEX_MODELS)
        self.old = pick.random() < 0.4
        self.context = pick.randrange(9_000, 15_000)
        self.fresh = 2_000
        self.turn_id = b""
        self.ordinal = 0
        self.spent = Spent()

    def run(self, size: int, parent: "CodexSession | None") -> None:
        pick = self.pick
        origin = b""
        if parent:
            self.at_ms = parent.at_ms + 60_000
            self.spent.add(parent.spent)
            origin = b'"forked_from_id":"%b",' % parent.id
        version = b"0.60.1" if self.old else b"0.166.0"
        rules = self.text.cut(pick, min(14_000, size // 8))
        now = stamp(self.at_ms)
        self._line(b"session_meta", META % (self.id, self.id, origin, now, version, rules))
        if parent and self.old:  # an old fork starts with its parent's history, in one go
            for line in list(parent.file.kept)[1:]:
                now = stamp(self.at_ms)
                self.file.add(line[: LINE_STAMP.start] + now + line[LINE_STAMP.stop :])
        while self.file.size < size:
            self._turn(size)
        if pick.random() < 0.03:  # out of room: a count that is none
            self._count(Spent(), Spent(), 258_400)
        self.file.close()

    def _line(self, kind: bytes, payload: bytes) -> None:
        self.at_ms += self.pick.randrange(3, 900)
        self.file.add(LINE % (stamp(self.at_ms), self.ordinal, kind, payload))
        self.ordinal += 1

    def _turn(self, size: int) -> None:
        pick, cut = self.pick, self.text.cut
        self.at_ms += int(pick.expovariate(1 / 400_000)) + 2_000
        self.turn_id = uuid(pick)
        if pick.random() < 0.05:
            self.model = pick.choice(CODEX_MODELS)
        started = b'{"type":"task_started","turn_id":"%b","model_context_window":258400}'
        self._line(b"event_msg", started % self.turn_id)
        self._line(b"turn_context", TURN % (self.turn_id, self.model))
        self._line(b"event_msg", SETTINGS % self.model)
        self._message(b"user", b"input_text", cut(pick, length(pick, 300)))
        for _ in range(min(int(pick.expovariate(1 / 9)) + 1, 60)):
            self._request()
            if self.context > WINDOW:
                self._compact()
            if self.file.size >= size:
                break
        self._message(b"assistant", b"output_text", cut(pick, length(pick, 500)))
        self._response()
        self._line(b"event_msg", b'{"type":"task_complete","turn_id":"%b"}' % self.turn_id)

    def _message(self, role: bytes, kind: bytes, said: bytes) -> None:
        body = b'{"type":"message","role":"%b","content":[{"type":"%b","text":"%b"}]}'
        self._line(b"response_item", body % (role, kind, said))
        event = b'{"type":"item_completed","item":{"type":"%bMessage","content":"%b"}}'
        self._line(b"event_msg", event % (role.title(), said))

    def _request(self) -> None:
        pick, cut = self.pick, self.text.cut
        secret = self.text.secret[: length(pick, 2_000)]
        body = b'{"type":"reasoning","summary":[],"content":null,"encrypted_content":"%b"}'
        self._line(b"response_item", body % secret)
        call = b"call_%024x" % pick.getrandbits(96)
        body = b'{"type":"function_call","name":"exec_command","arguments":"%b","call_id":"%b"}'
        self._line(b"response_item", body % (cut(pick, length(pick, 200)), call))
        printed = cut(pick, output_length(pick, 3_200))
        body = (
            b'{"type":"item_completed","item":{"type":"CommandExecution","aggregated_output":"%b"}}'
        )
        self._line(b"event_msg", body % head(printed, 6_000))
        body = b'{"type":"function_call_output","call_id":"%b","output":"%b"}'
        self._line(b"response_item", body % (call, printed))
        self._response()
        self.fresh += min(len(printed) // 4, 20_000)

    def _response(self) -> None:
        """What a reply cost: in the ledger of new versions, then as a count."""
        pick = self.pick
        output = length(pick, 250, 1.0) + 1
        written = self.fresh if pick.random() < 0.1 else 0
        last = Spent(
            self.context + self.fresh, self.context, written, output, int(output * pick.random())
        )
        self.spent.add(last)
        if not self.old:
            used, total = last.json(), self.spent.json()
            ledger = LEDGER % (self.id, self.turn_id, pick.getrandbits(96), used, total, total)
            self._line(b"token_usage_record", ledger)
        self.at_ms += pick.randrange(1_500, 40_000)
        self._count(self.spent, last)
        self.totals.add(self.at_ms, self.model, last.tokens())
        if pick.random() < 0.2:  # said again, for the rate limits
            self.at_ms += 1_500
            self._count(self.spent, last)
        self.context += self.fresh + output
        self.fresh = pick.randrange(20, 200)

    def _count(self, total: Spent, last: Spent, estimate: int = 0) -> None:
        used, resets = self.pick.randrange(100), self.at_ms // 1000 + 9_000
        body = COUNT % (total.json(estimate), last.json(estimate), used, resets)
        self._line(b"event_msg", body)

    def _compact(self) -> None:
        self._response()
        said = self.text.cut(self.pick, length(self.pick, 6_000, 0.4))
        body = b'{"message":"%b","replacement_history":[{"type":"message","role":"user"}]}'
        self._line(b"compacted", body % said)
        self.context = self.pick.randrange(12_000, 25_000)
        self.at_ms += 1_500
        used, resets = self.pick.randrange(100), self.at_ms // 1000 + 9_000
        body = COUNT % (self.spent.json(), Spent().json(self.context), used, resets)
        self._line(b"event_msg", body)  # an estimate, not a request


def write_codex(home: Path, sizes: Iterator[int], pick: random.Random, text: Text) -> Totals:
    totals = Totals()
    before: CodexSession | None = None
    for size in sizes:
        this = CodexSession(home, pick, text, totals, FIRST_MS + pick.randrange(DAYS * DAY_MS))
        this.run(size, before if before and pick.random() < 0.15 else None)
        whole = len(this.file.kept) == this.ordinal and this.file.size < FORKABLE
        before = this if whole else None
    return totals


# --- both -------------------------------------------------------------------------------------


def file_sizes(pick: random.Random, files: int, total: int) -> list[int]:
    """Log-normal, `total` bytes in all."""
    weights = [math.exp(pick.gauss(0.0, 1.4)) for _ in range(files)]
    share = total / sum(weights)
    return [max(MIN_FILE, int(share * weight)) for weight in weights]


def write(folder: Path, *, megabytes: int, files: int, seed: int = 0) -> Histories:
    """Fills the empty `folder` with `files` transcripts of about `megabytes` in all."""
    pick = random.Random(seed)
    text = Text(pick)
    sizes = file_sizes(pick, files, megabytes * 1_000_000)
    of_codex = files // 4
    claude_home, codex_home = folder / "claude", folder / "codex"
    for part in (claude_home / "projects", codex_home / "sessions"):
        part.mkdir(parents=True)
    claude = write_claude(claude_home, iter(sizes[of_codex:]), pick, text)
    codex = write_codex(codex_home, iter(sizes[:of_codex]), pick, text)
    written = [path.stat().st_size for path in folder.rglob("*.jsonl")]
    return Histories(claude_home, codex_home, len(written), sum(written), claude, codex)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    start = time.perf_counter()
    made = write(asked.folder, megabytes=asked.megabytes, files=asked.files, seed=asked.seed)
    seconds = time.perf_counter() - start
    print(f"{made.files} files, {made.size_bytes / 1e6:.0f} MB in {seconds:.0f} s")
    print(f"CLAUDE_CONFIG_DIR={made.claude_home} CODEX_HOME={made.codex_home}")
    print(f"claude: {made.claude.sum()}")
    print(f"codex: {made.codex.sum()}")


if __name__ == "__main__":
    main()
