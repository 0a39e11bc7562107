"""Where a provider's error body stands: behind the words of the program that shows it, behind an
arrow, or numbered line by line.

A body in such a place is what the program received. In a sentence about errors ("if it answers …",
"for example") it is only shown.
"""

from segue.core.lazy_pattern import lazy_pattern

_LEAD_WITHIN = 300
_BODY_LINES = 3
_LONGEST_LEAD = 120
_FAULT = lazy_pattern(
    r"(?i)error|fail(?:ed|ure|s)?\b|\breject(?:ed|s)\b|\brefus(?:ed|es)\b|\bdenied\b|exception|错误|失败"
    r"|錯誤|失敗|エラー|오류|실패|ошибк|fehler|fehlgeschlagen|erreur|échec|\berro\b|\bfall[oó]\b"
)
_CASE = lazy_pattern(
    r"(?i)[`\"{}=|]|\b(?:if|when(?:ever)?|unless|example|e\.g|like|such|returns?|looks?|would|could|may"
    r"|might|should|wenn|falls|si|quand|lorsque|cuando|quando|если|когда|i|we|my|handles?|expects?"
    r"|add(?:s|ed)?|tests?|shows?|see|docs?|means?|retry\w*|attempt)\b|如果|当|若|例如|比如|もし|例えば"
    r"|경우|만약"
)
"""What stands before a body that is only shown."""
_GOES_ON = lazy_pattern(
    r"[}\])]\W{0,2}\s(?:means?|is|are|was|and|or|should|indicates?|which|so|then|but|as|in)\s\w"
)
"""The sentence in which a body stands, below it."""
# The provider's own body, or its status with a code.
_ANSWERED = lazy_pattern(
    r"[:.]\s{0,2}(?:"
    r"[{(\[]{1,2}\s?\\?[\"'](?:type|error|errors|code|message|status|object|detail)\\?[\"']\s?:"
    r"|[45]\d\d\s(?:[A-Z]{2,}(?:_[A-Z]+)+|[a-z]+(?:_[a-z]+)+)(?:\W|$))"
)
# The result of a step, as a trace prints it: an arrow, and the field with the error.
_TRACED = lazy_pattern(
    r"^(?:->|=>|<-|→)\s(?:[\w.]{0,60}(?:result|response|run|step|task|job|output)\.)?(?:error|err)\s?[:=]\s?"
    r"\{\s?[\"']?(?:code|type|message)[\"']?\s?:"
)
_ROW_NUMBER = lazy_pattern(r"^\s*(\d{1,5})(?:[:|→]\s?|\t|\s{1,2})")


def leads_to_body(said: str) -> bool:
    """Whether a line says that something failed, and then shows what the provider answered."""
    found = _ANSWERED.search(said, 0, _LEAD_WITHIN)
    if found is None or found.start() > _LONGEST_LEAD:
        return False
    lead = said[: found.start()]
    failed = bool(_FAULT.search(lead)) and not _CASE.search(lead)
    return failed and not _GOES_ON.search(said, found.end(), _LEAD_WITHIN)


def is_traced(said: str) -> bool:
    """Whether a trace shows the error with which a step ended."""
    return bool(_TRACED.match(said))


def is_numbered_body(spoken: list[str]) -> bool:
    """Whether each line has its number before it, and what they number is one body. Numbered source
    code is shown, so its numbers stay."""
    rows = [_ROW_NUMBER.match(line) for line in spoken]
    numbers = [int(row[1]) for row in rows if row]
    if len(spoken) < _BODY_LINES or len(numbers) < len(spoken):
        return False
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return False
    rest = [line[row.end() :].strip() for line, row in zip(spoken, rows, strict=True) if row]
    return rest[0][:1] in ("{", "[") and all(not t or t[0] in "{}[]\"'" for t in rest)


def without_number(line: str) -> str:
    """A line without its number."""
    return _ROW_NUMBER.sub("", line)
