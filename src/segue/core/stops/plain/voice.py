"""Whose voice is a line? The shapes that distinguish code, logs, bodies and errors.

These are shapes, not wordings: they look at how something is said, not at what. A line that starts
like an error may say anything; a line of code says nothing, whatever it contains.

All in one file, because the shapes are tried in one order.
"""

from enum import Enum

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.plain.bodies import is_traced, leads_to_body

_LEVEL_WITHIN = 400  # a log line has its level near its beginning
_RAISED_WITHIN = 300
_WRAPPED_CHARS = 56


class Voice(Enum):
    """Who speaks in a unit."""

    ERROR = "error"
    PLAIN = "plain"
    PROMPT = "prompt"
    RUNNING = "running"
    MUTED = "muted"


_MARK = lazy_pattern(
    r"^(?P<mark>[⏺●■□✕✗✖✘❌⛔🚫🛑🖐⎿└╰↳✦•◦⚠⚡⏹ⓘℹ✻✽✶✢✳✔✓✅⏱🌐📝📋💡❯›▌»🔴🟡⨯×⏵▶→]+|[>%$](?=\s)|\w{1,12}>(?=\s))\s*"
)
_ERROR_MARKS = set("■✕✗✖✘❌⛔🚫🛑🖐⨯×🔴")
_RESULT_MARKS = set("⎿└╰↳")
_PROMPT_MARKS = set("❯›▌»>$%")
_SPEAKER_MARKS = set("⏺●✦")
_TICKS = set("•◦✓✔✅→▶")

_LOG = lazy_pattern(
    r"^\W{0,3}(?:\[?\d{2,4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|timestamp=|time=\"?\d|level=\w"
    r"|[A-Z][a-z]{2} \d\d? \d\d:\d\d:\d\d"
    r"|(?:INFO|WARN|WARNING|ERR|ERROR|DEBUG|TRACE|FATAL)\b[:\s|\]]"
    r"|[\w./-]{1,60}\.(?:[jt]sx?|py|go|rs|java|rb):\d+\b"
    r"|(?:\[\d+\]\s+[\d.]+\s+[A-Z]\s+)?(?:srv|slot)\s+\w+:|[\w-]{1,30}\s+\|\s)"
)
_LOG_LEVEL = lazy_pattern(
    r"(?i)error\b|\b(?:fatal|critical|severe|panic|warn|warning|err)\b|exception|\bfailed\b"
)
_NOT_OURS = (
    r"(?!(?:assertion|import|modulenotfound|syntax|name|attribute|index|key|filenotfound"
    r"|zerodivision|unicode\w+|permission)error\b)"
)
# "I keep getting this error: …" talks about an error.
_NO_TALK = r"(?!(?:i|we|my|our|this|that|get|got|getting|see|seeing|keep|the|an?)\b)"
# A code that names what happened, as the head of its message: "tokens_exceeded: the prompt has …".
_EVENT_CODE = (
    r"(?-i:(?:[a-z]+_)+(?:exceeded|error|invalid|denied|failed|failure|exhausted|reached|expired"
    r"|unavailable|overloaded|timeout|unauthorized|required|large|long|many|requests|found|limited)"
    r"|(?:invalid|insufficient|missing|unsupported|unknown|too)(?:_[a-z]+)+)"
)
_ERROR_LEAD = lazy_pattern(
    r"(?ix)^(?:\^C)?(?:[^\w`\"']|_){0,4}(?:\[[^\]]{1,60}\]\s*){0,3}(?:[^\w`\"']|_){0,5}(?:\d{1,2}:\s)?(?:"
    r"  (?:api|internal|system|provider|network|connection|server|model|llm|stream|terminal|task"
    r"     |fatal|unexpected|unknown|unrecoverable|upstream)\s+(?:request\s+|streaming\s+)?"
    r"     (?:error|failed|failure|exception|status)\b"
    r"| error\b(?:\s*[:({\['\"!-]|\s+(?:\d|\w+ing\b|code|while|when|from|with|in\b|details"
    r"     |message|msg|occur(?:s|red)|condition|failed)\b|$)"
    r"| there\s+was\s+an?\s+(?:error|problem)\s+\w+ing\b"
    r"| <[45]\d\d>\s|stream\s+disconnected\s+before\s+completion\b|unhandled(?:promise)?rejection\b"
    r"| (?:fatal|exception|failed(?!\s\w+\s(?:are|is|were|that|which)\b)|failure|panic|uncaught"
    r"     |unhandled|traceback|caused\s+by)\b"
    r"| (?:(?:api|llm|sdk)\s+)?(?:request|query|execution|(?:model|api|llm)\s+call)"
    r"     \s+(?:failed|error)\b"
    r"| аpi\s+error\b|(?:错误|ошибка|erreur|fehler)\s?:"
    r"| \(\w{2,20}\)\s+error:|(?:the\s+)?service\s+reports\s+an\s+error\b"
    r"| (?:[a-z_.]+\s*:\s*)?<\w*(?:Rendezvous|RpcError)\b"
    r"| task\s+exception\s+was\s+never\s+retrieved\b"
    rf"| {_NOT_OURS}(?-i:(?:[A-Za-z_][\w.:]*[.:])?_?[A-Z]\w*(?:Error|Exception|Failure)\b)"
    r"     (?:\s*[:({'\[-]|\.\s[A-Z]|$)"
    r"| (?-i:(?:[a-z_]\w*\.)*(?:exceptions?|errors?)\.[A-Z]\w+)\b\s*[:(]"
    r"| (?-i:(?:[a-z_]\w*\.)+(?:[A-Z]\w*)?Timeout)\b\s*[:(]"
    r"| (?-i:[A-Z][a-z]+Timeout):\s(?!\d)"
    r"| (?-i:(?:[a-z_]\w*\.)+[A-Z]\w+):\s[45]\d\d\b"
    r"| \(\w*(?:error|exception)\)"
    r"| (?:[a-z]+\s+)?exception:\s[45]\d\d\b"
    r"| (?:http|status|(?:got\s+)?status(?:[\s_]*code)?|error\s*code|code)[\s:=]*[45]\d\d\b"
    r"     (?!\s(?:(?:usually\s)?(?:means?|indicates?)|says|is\s(?:the|an?|returned|sent))\b)"
    r"| [45]\d\d:?\s+(?!(?:errors?|responses?|requests?|status\w*|codes?)\s(?:are|is|were|mean))"
    r"     (?:-\s)?[\[{<\"'a-z]"
    r"| \[[^\]]{0,40}(?:error|\b[45]\d\d\b)[^\]]{0,40}\]"
    r"| (?:sorry|oops|uh-oh)\b"
    r"| an?\s+(?:unexpected\s+|internal\s+|unknown\s+|unhandled\s+)?(?:server\s+)?"
    r"     (?:error|exception)\s+(?:occurred|was|has|happened)\b"
    r"| reason:\s.{0,120}(?:\b[45]\d\d\b|error|limit)"
    r"| [\w.-]{2,40}:\s*(?:api\s+)?[45]\d\d\s"
    r"| unexpected\s+(?:api\s+)?response\b"
    r"| (?:post|get|put)\s+\"?https?://\S+\s+failed\b|(?:post|get|put)\s+\"https?://[^\s\"]+\":\s"
    rf"| {_EVENT_CODE}:\s(?![\"'`\[{{]|(?:true|false|null)\b)\S+\s\S+\s\S"
    r"| [a-z_]+\.\d+(?:\.[a-z_0-9]+)+:\s\w+\s\w|curl:\s\(\d+\)\s"
    r"| api\s+time-?out\b"
    r"| (?:[a-z.-]+\s+){0,4}returned\s+(?:an?\s+)?(?:error|http\s+[45]\d\d|status)"
    r"| (?:agent|task|run|session|execution|turn)\s+(?:execution\s+|run\s+)?(?:has\s+|was\s+)?"
    r"     (?:been\s+)?(?:stopped|terminated|aborted|failed|crashed|errored|halted)\b"
    r"| (?:[a-z]+\s){1,4}(?:check|call|request|query|turn|stream|generation"
    r"     |inference|completion|execution|run|task|session|job|step)\s+failed:"
    r"| (?:[a-z]+\s){0,2}error\s+with\s|errno\s+\d+\b|-\s+could\s+not\s"
    r"| \[[^\]]{0,20}(?:错误|エラー)\]"
    r"| -\s+caused\s+by:"
    r"| stopped:|(?:request|access)\s+(?:was\s+)?(?:denied|rejected|refused|blocked)\s*:"
    r"| keyboard\s?interrupt\b"
    r"| unexpected\s+status\b"
    r"| (?:could\s+not|couldn't|cannot|can't|unable\s+to)\s+(?:\w+\s){0,3}\w+:\s\w"
    r"| ran\s+into\s+(?:this|an)\s+error\b"
    rf"| (?:due\s+to\s+an\s+)?(?:{_NO_TALK}[a-z0-9./-]+\s+){{1,4}}error\b"
    r"     (?:\s*[:,(\[{]|\sfrom\s|\s[45]\d\d\b|$)"
    r"| (?:[\w.-]+,?\s+){0,3}[\w.-]+:\s+(?:(?:api\s+)?error|fatal|request\s+failed"
    r"     |(?:model|api|llm|provider|stream|inference)\s+(?:call|request)?\s*"
    r"     (?:failed|error)(?=:))\b"
    r"| (?:full\s+|raw\s+|original\s+|upstream\s+)?error\s+(?:stack|details|message)\s*[:(]"
    r"| something\s+went\s+wrong\b"
    r"| (?:the\s+)?(?:\w+\s+){0,2}(?:provider|upstream|gateway|backend)\s+(?:has\s+)?"
    r"     (?:rejected|refused|declined)\s+(?:the|this|your)\s+request\s+because"
    r"     \s+(?:the|your|this)\s(?:\w+\s){1,4}(?:is|has|was)\b"
    r"| (?-i:E(?:CONN|TIMED|NOTFOUND|AI_|PIPE|HOST|NET|PROTO)[A-Z_]*)\b"
    r"| (?:forbidden|unauthorized|bad\s+request|bad\s+gateway|service\s+unavailable"
    r"     |too\s+many\s+requests|internal\s+server\s+error|payment\s+required)\b\s*(?:[:.(]|$)"
    r")"
)
_BODY_LEAD = lazy_pattern(
    r"(?i)^[\s{\[(<b'\"\\]{0,6}(?:\w{0,20}error\w{0,20}|cause|details?"
    r"|httpstatuscode|statuscode|status|message|msg|code|data|object|type|timestamp|time|level"
    r"|severity|context|request_?id|name|event|num_turns|subtype|terminal_reason|is_error|result"
    r"|stop_?reason|finish_?reason|duration_ms|session_?id)[\"'\\]{0,3}\s*:"
)
_BODY_ERROR = lazy_pattern(
    r"(?i)error|exception|fail|exceed|exhaust|denied|invalid|\b[45]\d\d\b"
    r"|reason[\"']?\s*:\s*[\"'](?:guardrail_intervened|content_filter\w*|refusal|safety)[\"']"
)
_NO_ERROR = lazy_pattern(
    r"[\"']?\w{0,20}error\w{0,20}[\"']?\s*:\s*(?:null|None|false|False|\"\"|''|\{\}|\[\]|0\b)"
)
# An object that calls itself an error somewhere: a logger's record, an SDK's repr.
_ERROR_INSIDE = lazy_pattern(
    r"[\"']name[\"']:\s?[\"']\w+Error[\"']|<class '[\w.]+(?:Error|Exception)'>"
    r"|\bnode::OOMErrorHandler\b|\bFatalProcessOutOfMemory\b|^#\sFatal\sprocess\b"
    r"|(?:Error|Exception)\(['\"]|\bis_?[eE]rror=(?:true|True)\b"
    r"|^\{.{0,400}\"(?:error|err)\"\s*:\s*[\"{]|\{\s?error: \w|\bis_error=True\b|\bblock_reason=<"
    r"|\btriggerUncaughtException\("
    r"|[\"'](?:finish|block|stop)_?[rR]eason[\"']\s?:\s?[\"'](?:SAFETY|PROHIBITED_CONTENT|RECITATION"
    r"|BLOCKLIST|SPII|content_filter)[\"']"
)
_BODY = lazy_pattern(r"^\s*[\]}{\[\"'`(),]|^\s*[A-Za-z_@]{1,24}[\"']?\s*:\s")
_MUTED = lazy_pattern(
    r"""(?x)^(?:
      [+-](?!-\w|\s[Cc]aused\s[Bb]y:|\s\{'error')(?:\s|[^\s\d]|\d*$)
    | \[[xX ]\]\s | (?:Scenario(?:\sOutline)?|Feature|Background):\s
    | (?:Given|Then)\s(?:the|an?|I|my|that|no|this|we)\s
    | (?:[Dd]escription|[Ss]ummary|[Dd]ocs?|[Hh]elp|[Tt]ooltip):\s[A-Z][a-z]+
      \s(?:when|if|by|for|that)\s
    | [A-Z]\w*(?:Error|Exception):\s(?:If|When|Whenever|Raised|Thrown)\s[a-z]
    | \*\*[^*]{2,60}\*\*\s[–—-]\s | (?:Title|Subject|Labels?|Author|Milestone|Comments?):\s
    | \|\s? | \#{1,6}\s(?!Fatal\sprocess\b) | \*\s | \d{1,3}[.)]\s | // | /\* | <!-- | @@\s
    | <(?:!|/?(?:html|head|body|meta|title|link|script|style|div|span|p|a|table|t[rdh]|pre|h[1-6]
        |br|hr|center|ul|li)\b)
    | >>>\s | \S{1,200}\.py:\d+:\s\w+(?:Error|Exception)$ | E\s | \#!?(?!\sFatal\sprocess\b) | --\s
    | _{6,} | ={6,} | (?:FAILED|PASSED|ERROR|SKIPPED)\s+\S+(?:::|\.py)
    )"""
)
# In a log a message may start with any character; the report of a failed test is still one.
_MUTED_IN_LOG = lazy_pattern(
    r"^(?:\S{1,200}\.py:\d+: \w+(?:Error|Exception)$|E\s|@@\s|>\s|[+-]\s(?!\{'error')|_{6,}|={6,}"
    r"|(?:FAILED|PASSED|ERROR|SKIPPED)\s+\S+::)"
)
_STATEMENT = lazy_pattern(
    r"""(?x)^(?:def|class|import|from|return|if|elif|else|for|while|try|except|raise|assert|with|const|let
      |var|function|func|fn|pub|struct|enum|echo|printf|print|grep|rg|sed|awk|curl|sudo|export|check
      |async|await|switch|case|throw|catch|local|use|package|public|private|static|expect|it|test|new
      )\b.*(?:[(){}\[\];=$"'`\\|<>]|:$)
    """
)
_CODE = lazy_pattern(
    r"""(?x)
      ^@\w | ;\s*$ | [)\w"']\s*\{\s*$ | =>|===?\s|!==?\s|\s&&|\s\|\||\s:=\s|\$\(|\$\{|\[\[
    | ^\w[\w.\[\]"']*\s+[+|]?=\s+\S | ^\w+=\S*$ | ^\w+=\w+\(
    | ^[\w.]+\([^)]*\)\s*[;:]?$ | ^\w+\.\w+\(
    """
)
_FIELD = lazy_pattern(
    r"^\w{2,30}=\S*$|^(?:status|details|debug_error_string|code|message)\s=\s"
)  # gRPC's
_TOLD = lazy_pattern(r"^(?:subtype|terminal_reason|stop_reason|finish_reason|exit_reason|error)=\S")
_CITED = lazy_pattern(r"^([\"'`])(?!\w+\1).+\1\s+[a-z]{2,}")  # "…" is quoted output
_SHAPE = lazy_pattern(
    r"\"\|\"|:\s?\.\.\.[,}]|\"(?:enum|properties|\$schema)\"\s*:\s*[\[{\"]"
)  # of a record, in a document about it
_LITERAL = lazy_pattern(r"^(['\"]).*\1[,;)]+$")
# What no program prints: a template with placeholders, a table of statuses, a field with its type.
_SOURCE = lazy_pattern(
    r"\$\w{1,60}\s?[:=]\s|[A-Z]{1,40}(?:_[A-Z]{1,40})+:\s(['\"])\w+\1,?$|\w{1,80},$"
    r"|\(['\"]\w+['\"],\s\d+\),?$|[1-5]\d\d:\s(['\"]).*\2,?$|\.\.\.\w+,?$"
    r"|\w{1,60}: (?:Optional|List|Dict|Union)\["
    r"|\w{1,60}\??:\s(?:number|string|boolean|unknown|any|Record<.*>|null \| \w.*)[;,]?$"
)
_TEMPLATE = lazy_pattern(r"`[^`]{0,400}\$\{")
_KEY = lazy_pattern(r"^[\"']?[\w.-]+[\"']?\s*:")
_RAISED = lazy_pattern(r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
_ERROR_LATER = lazy_pattern(
    r"^(?!\W*(?:[-*#>]|\d+[.)]))[^\"`]{0,140}?[.,:\]—-]\s+(?:API )?(?:Error|Exception|ERROR)"
    r"(?: [Cc]ode| (?:during|while|in|from) [\w ]{1,60})?:\s"
)
_STATUS_LATER = lazy_pattern(r"^[^\"`{]{4,120} (?:an |the |this )?error: (?=[45]\d\d\b)")
_RAISED_LATER = lazy_pattern(rf"^[^\"`]*?[:\])|>=-]['\s]+{_RAISED.pattern}")
_STACK = lazy_pattern(
    r"^(?:at\s|File\s\"|\.\.\.|\^+$|~+|Emitted\s|node:|throw\s"
    r"|\d+:\s0x(?!.{0,200}(?:OOM|OutOfMemory)))"
)
_FRAME = lazy_pattern(r"^File \".{1,400}\", line \d+")
_CLIENT = lazy_pattern(r"(?:[A-Z][\w ]{2,40} due to an? API error: )?API Error\b")
_REPORT = lazy_pattern(r"(?i)^an uncaught exception occurred:$")
_ITEM = lazy_pattern(r"^(?:[*+-]|\d{1,3}[.)])\s+[^\W\d_]")
_TEST = lazy_pattern(
    r"^(?:expect|assert\w*|describe|it|test|self\.assert\w+)\(.*|\.(?:toEqual|toBe|toThrow|toMatch\w*)\("
)
_ANSWER = lazy_pattern(r"(?i)\b(?:api response|response(?: body)?|error|body|reply)\s*[:=]?$")
_TOOL_CALL = lazy_pattern(r"^[A-Z][\w-]*(?: [A-Z][\w-]*){0,3}\(")
_RUNNING = lazy_pattern(
    r"(?i)^(?:working|thinking|running|waiting)\b.*\besc to (?:interrupt|cancel)"
    r"|^(?!a?waiting (?:for|on|user|your|approval|confirm|permission|input))[A-Z]\w{2,}ing\b.*…$"
    r"|^\S{3,}…\s*\(.*(?:thinking|tokens|esc to|\d+s)\b.*|\w…\s\(esc to interrupt"
)


def split_mark(line: str) -> tuple[str, str]:
    """The bullet or prompt at the start of a line, and the rest."""
    found = _MARK.match(line)
    return (found["mark"], line[found.end() :]) if found else ("", line)


def is_prompt(mark: str) -> bool:
    """Whether the text after this mark is the user's own line."""
    return bool(mark) and (mark[0] in _PROMPT_MARKS or mark[-1] == ">")


_DIFF = lazy_pattern(r"^(?:@@ |diff --git |index [0-9a-f]{6,}\.\.|\+\+\+ |--- [ab]/)")
_FENCE = lazy_pattern(r"^(?:```|~~~\w*$)")


def opens_diff(text: str) -> bool:
    """Whether this is the head of a patch, after which unmarked lines are context."""
    return bool(_DIFF.match(text))


def is_fence(text: str) -> bool:
    """Whether this is the fence of a quoted block."""
    return bool(_FENCE.match(text))


def is_client_error(text: str) -> bool:
    """Whether this is an error in words that only the client itself uses."""
    return bool(_CLIENT.match(text))


def is_result(mark: str) -> bool:
    """Whether this is the mark of a result."""
    return bool(mark) and mark[0] in _RESULT_MARKS


def is_speaker(mark: str) -> bool:
    """Whether this is the bullet of the model's own words."""
    return bool(mark) and mark[0] in _SPEAKER_MARKS


def is_tick(mark: str) -> bool:
    """Whether this is the bullet of a list, or the tick of a report."""
    return bool(mark) and mark[0] in _TICKS


def is_tool_call(text: str) -> bool:
    """Whether this is Name(arguments), the way clients show a call."""
    return bool(_TOOL_CALL.match(text))


def is_log(text: str) -> bool:
    """Whether this is a log line with a time stamp or a level."""
    return bool(_LOG.match(text))


def is_item(text: str) -> bool:
    """Whether this is a list item; indented lines below it belong to it."""
    return bool(_ITEM.match(text))


def is_test(text: str) -> bool:
    """Whether only the source code of a test has such a line."""
    return bool(_TEST.search(text))


def is_stack(text: str) -> bool:
    """Whether this is a frame of a stack trace."""
    return bool(_STACK.match(text))


def is_raised(text: str) -> bool:
    """Whether this is the name of an exception with its message."""
    return bool(_RAISED.match(text))


def is_frame(text: str) -> bool:
    """Whether this is the location of a frame of a Python stack trace; its code is in the next
    line."""
    return bool(_FRAME.match(text))


def announces_report(text: str) -> bool:
    """Whether this is the line above a client's own crash report, which follows as a fenced
    block."""
    return bool(_REPORT.search(text))


def names_answer(text: str) -> bool:
    """Whether this line says that the server's response follows."""
    return bool(_ANSWER.search(text))


def is_body(text: str) -> bool:
    """Whether this is a line of a JSON-like body."""
    return bool(_BODY.match(text))


def is_source(text: str) -> bool:
    """Whether only source code has such a line; the fields next to it are then source code too."""
    return bool(_SOURCE.match(text)) or ("${" in text and bool(_TEMPLATE.search(text)))


def is_string(text: str) -> bool:
    """Whether a body is one string, not the middle of a record."""
    return text.lstrip().startswith('"') and not _KEY.match(text.lstrip())


def is_faulty(text: str) -> bool:
    """Whether a body mentions an error at all."""
    return bool(_BODY_ERROR.search(_NO_ERROR.sub("", text)))


def opens_code(text: str) -> bool:
    """Whether this is a line of code that its arguments or fields follow."""
    return text[-1:] in ("(", "{", "[", ",") and is_code(text) and not is_stack(text)


def is_code(text: str) -> bool:
    """Whether this is code, a shell line, or a frame of a stack trace. JSON-like bodies are not."""
    if (_LITERAL.match(text) and not _KEY.match(text)) or is_source(text):
        return True
    if is_body(text):
        return False
    return bool(_STACK.match(text) or _STATEMENT.match(text) or _CODE.search(text))


def voice_of(mark: str, text: str, *, logs: bool, in_code: bool, prefix: str = "") -> Voice:
    """The voice of one cleaned line. `logs`: whether a log line can be the agent's own. `in_code`:
    the line above started a piece of code. `prefix`: what a logger put before it."""
    if is_prompt(mark):
        return Voice.PROMPT
    if _RUNNING.search(text):
        return Voice.RUNNING
    if is_traced(text):
        return Voice.ERROR
    log = bool(prefix) or is_log(text)
    muted = _MUTED_IN_LOG if prefix else _MUTED
    if (not mark and (muted.match(text) or (not logs and log))) or (prefix and mark[:1] == ">"):
        return Voice.MUTED
    if in_code and is_body(text) and not _RAISED.match(text):
        return Voice.MUTED
    if _CITED.match(text) or _SHAPE.search(text) or is_source(text):
        return Voice.MUTED
    if mark and mark[0] in _ERROR_MARKS:
        return Voice.ERROR
    if text.endswith(";") and _KEY.match(text) and not prefix:
        return Voice.MUTED  # a field of a type, not of a body
    if _STATEMENT.match(text):  # before errors, because `throw new Error(…)` starts like one
        return Voice.MUTED
    if _ERROR_LEAD.match(text):
        return Voice.ERROR
    if log:
        return Voice.ERROR if _LOG_LEVEL.search((prefix + text)[:_LEVEL_WITHIN]) else Voice.PLAIN
    if (_BODY_LEAD.match(text) and is_faulty(text)) or _ERROR_INSIDE.search(text):
        return Voice.ERROR
    if leads_to_body(text) or (_TOLD.match(text) and logs):
        return Voice.ERROR
    if is_code(text):
        return Voice.MUTED
    if _ERROR_LATER.match(text[:_RAISED_WITHIN]) or _STATUS_LATER.match(text):
        return Voice.ERROR
    if _RAISED.match(text) or _RAISED_LATER.match(text[:_RAISED_WITHIN]):
        return Voice.ERROR
    return Voice.PLAIN


def wraps(line: str) -> bool:
    """Whether this line looks as if its sentence continued in the next one."""
    return len(line) >= _WRAPPED_CHARS and (line[-1].isalpha() or line[-1] in ",:")


def continues_error(text: str) -> bool:
    """Whether a line continues the error above it, although it may look like something else."""
    field = is_body(text) and text.endswith(",")  # `statusCode: 404,` in the dump of an error
    if _ERROR_LEAD.match(text) and text[0] not in "\"'{}" and not field:
        return False
    if is_body(text) or is_stack(text) or _FIELD.match(text):
        return True
    return not (_ERROR_LEAD.match(text) or is_log(text) or _MUTED.match(text) or is_code(text))
