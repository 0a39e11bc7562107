"""Is a plain line a message? If nothing else shows that it is an error, its form must.

A message states what happened, right away, in few words, about the user's things. What can happen,
what is done about it, who fixed it and why are said in other forms: conditions, habits, reasons,
the first person. This module looks only at such forms, never at what a line is about.
"""

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.voice import Voice

_MAX_WORDS = 70
_MAX_LINES = 8
_LOWER_WORDS = 9  # a longer line that starts in lower case is the rest of a sentence
_LEAD_WORDS = 8
_SENTENCE_END = lazy_pattern(r"[.!?]\s")
_STATEMENT_WORDS = 45

_THINGS = (
    r"(?:request|model|endpoint|session|conversation|account|organization|agent|content|chat|message"
    r"|prompt|run|task|key|workspace|plan|api|provider|response|turn|feature)"
)
_TALK = lazy_pattern(
    r"(?i)^\W{0,3}(?:i(?!'m sorry| cannot| can't| am unable| won't)|we(?!'re|'ve| are| have)|my"
    r"|our(?! (?:servers?|services?|systems?|models?|api)\b)"
    r"|let(?:'s| me)|it(?:'s)?|they|there|he|she|so|but|and|also|now|here"
    rf"|(?:this|that|these)(?! {_THINGS}\b)"
    r"|re:|fwd?:|skipp(?:ing|ed)|ignor(?:ing|ed)|truncat(?:ing|ed)|summary|between|note|fix(?:ed)?|add(?:ed)?|changed?|removed?|improved?|updated?|usage:"
    r"|the (?:docs?|code|tests?|function|file|user|fix|issue|bug|error|problem|outage|cli"
    r"|client))\b"
)
# The rest of a sentence that began above: no message starts with such a word in lower case.
_REST = lazy_pattern(
    r"^(?:are|is|was|were|be|been|has|had|have|does|do|did|will|would|can|may|might|should|must|asks?|of"
    r"|to|for|from|in|on|at|by|with|and|or|nor|than|then|as|into|over|its?|their|his|her|they"
    r"|he|she|we|so|such|any|some|these|those|which|whose|who|where|when|while|because|since|but|also"
    r"|only|either|both|each|every|via|per|about|after|before|during|between|through|under|within)\b"
)
_SHOWN = lazy_pattern(
    r"`.*`.*`|[{}]|(?<!--resume)(?<!--session)(?<!--continue)=|<[/\w]|\w>|\b(?:e\.g\.|i\.e\.)|::|->|\(\)|^\W*\w+:\s*$"
)
_QUIET = lazy_pattern(r"(?i)\b(?:info|debug|trace|notice)\b")
_WARNED = lazy_pattern(r"(?i)\bwarn(?:ing)?\b")
_CLAUSE = lazy_pattern(
    r"(?i)^\W*(?:when(?:ever)?|if|because|since|although|while|once|after|before|until|unless|as|how"
    r"|why|what|whether|this (?:lets|pr|change|issue|fix|is|was|happens)|these|those)\b"
)
_CONDITION = lazy_pattern(
    r"(?i)^\W{0,3}(?:if|when(?:ever)?|unless|in case|should you|once|after)\b"
)
_ADVICE = lazy_pattern(
    r"(?i)^\W{0,3}(?:please|try|press|type|hit|visit|see|learn|for (?:more|details|help|further)"
    r"|contact|use\b"
    r"|to (?:learn|see|fix|resolve|get|avoid|increase|change|manage)|you (?:can|may|could|might)"
    r"|consider|check|make sure|read|refer|upgrade|purchase|buy|top up|switch|ask|go to"
    r"|they may|this (?:may|might|could))\b"
)
_ORDER = lazy_pattern(
    r"(?i)^\W{0,3}(?:reduce|shorten|increase|decrease|lower|raise|restart|compact|truncate|trim|split|wait"
    r"|switch|set|enable|disable|open|start|stop|use|ensure|verify|choose|select|avoid|keep|remove)\s"
)
_HABIT = lazy_pattern(
    r"(?i)\b(?:because|which|who|when(?:ever)?|while|whether|that|if|unless|may|might|would|should"
    r"|can|could(?! not|n't)|will|now|also|instead|so|causes?|caused|enforces?|returns?|handles?"
    r"|handling|retri(?:ed|es)|retry|includes?|prevents?|avoids?|treats?|tests?|shows?|reports?"
    r"|support(?:s|ed)?|adds?|added|fix(?:e[sd])?|improve[sd]?|triggers?|happens?|occurs|such as"
    r"|e\.g|patterns?|messages? (?:is|are)|errors? (?:is|are|messages?)|responses? (?:is|are))\b"
    r"|#\d"
)
_NO = lazy_pattern(r"(?i)\b(?:not|never|no)\b|n't\b")
_TAKEN_BACK = lazy_pattern(
    r"(?i)^[\w ]{0,12}?\b(?:is|was|has|have|are|were|did|does|do)(?:n't| not| never)\b"
)
_EXPLAINED = lazy_pattern(
    r"(?i)^[`'\")\s]*(?:errors?|messages?|exceptions?|codes?|failures?)?[`'\"\s]*(?:comes?"
    r"|is (?:the|a|an|caused|typically|usually|often|when|what)|are (?:now|then|typically|usually)"
    r"|means?|occurs?|happens?|indicates?|appears?)\b"
)
# The name of a thing, which says nothing about it.
_NAMED = lazy_pattern(
    r"(?i)^(?:rate[- ]?limit(?:s|ing)?|max(?:imum)?[- ](?:context|prompt)[- ]\w+|context overflow"
    r"|network (?:issue|problem)s?|usage polic\w+|content polic\w+|moderation|guardrails?|refusal"
    r"|timeouts?|deadline|panic|time limit|cool(?:ing)?[- ]?down|slow(?:ing)? down|high demand"
    r"|(?:requests|tokens|messages) per \w+|[A-Z]{2,4}[MDS]|fatal error|billing \w+"
    r"|plan and billing)$"
)
_HEDGED = lazy_pattern(r"(?i)\b(?:might|maybe|perhaps|probably|possibly|likely)\b")
_PERSON = lazy_pattern(r"(?i)\b(?:i|i'm|i've|i'll|my|we'll|we've fixed|let's|let me)\b")
_REFUSES = lazy_pattern(r"(?i)^\W{0,3}(?:i'm sorry|sorry|i (?:cannot|can't|am unable|won't))\b")
_HUMAN = lazy_pattern(
    r"\bI(?:'ve|'m|'ll| have| am| will| had| was)? (?:also )?(?:believe|think|guess|fixed|added"
    r"|updated|looked|changed|checked|tried|found|see|saw|noticed|want|need|just|get|got|used?|hit"
    r"|keep|renewed|ran|wrote)\b"
)


_CHANGE = lazy_pattern(
    r"(?i)^\W?(?:resolved|identified|monitoring|investigating|post-?mortem)\b\W"
    r"|(?m:^\W{0,3}(?:fixed|improved|added|changed|removed|updated) \w)"
    r"|\bnow (?:also )?(?:covers?|handles?|supports?|shows?|retries|checks?)\b"
    r"|\(#\d+|\b(?:fixe[sd]|closes|resolves|see|in|pr|issue) #\d|\bby @[\w-]+ in https?:"
    r"|^\W{0,3}(?:feat|fix|chore|docs|refactor|perf|test|build|ci|style|revert)"
    r"(?:\([\w ,./-]+\))?!?: "
)
_GENERAL = lazy_pattern(
    r"(?i)\b(?:requests|users|calls|clients|keys|errors) (?:that|which|must|should|can|get"
    r"|are (?:rejected|retried|counted|refused))\b"
)
# A view of names with their values: nothing happened.
_FIELDS = lazy_pattern(
    r"(?i)(?:(?!(?:error|message|msg|reason|summary|cause|status|details?|failed|failure|warning)\b)"
    r"[a-z][\w -]{1,24}: +\S[^\n]{0,48}(?:\n|$)){2,}"
)
_NARRATED = lazy_pattern(
    r"(?i)\b(?:yesterday|last (?:night|week|month|year)|(?:this|that) morning"
    r"|the other day|earlier today"
    r"|came from|nothing in your|in your code"
    r"|you(?:'re| are) seeing|you(?:'ve| have)? (?:saw|seen)"
    r"|(?:usually|often|typically|generally|normally|always|sometimes|commonly|mostly)"
    r" (?:means?|indicates?|points? to|comes? from|happens?|(?:is|are) (?:caused|due|a sign))"
    r"|means (?:that )?(?:the|a|an|your) (?:caller|client|server|user|key|account|request|process)"
    r"|(?:get|receive|see|return|answer with|respond with)s? (?:an? |the )?(?:http )?[45]\d\d"
    r"|is an? (?:[\w-]+ ){1,4}(?:failure|error|message|pattern|issue|problem|symptom)"
    r" (?:pattern |reported|seen|that|which|for|when|shown|printed))\b"
    r"|(?:^|[:.] )(?:raised|thrown|returned|emitted|sent|shown|printed|logged) (?:when|if|for|by)\b"
)


def is_change_note(text: str) -> bool:
    """Whether a text tells of a change to a program or a service, as release notes, commits and
    status pages do."""
    return bool(_CHANGE.search(text))


def is_narrated(text: str) -> bool:
    """Whether a text tells of what happened at another time, or in somebody's code."""
    return bool(_NARRATED.search(text))


def may_claim(unit: Unit, text: str) -> bool:
    """Whether this unit's claims may count. In an error they do, unless its own log calls it
    harmless. A plain line must have the form of a message."""
    if unit.voice is Voice.ERROR:
        return not is_quiet(unit)
    if unit.voice is not Voice.PLAIN or unit.log or unit.speaker or unit.item:
        return False
    words = len(text.split())
    if words > _MAX_WORDS or text.count("\n") > _MAX_LINES:
        return False
    if not text or is_rest(text) or is_change_note(text):
        return False
    if is_narrated(text) or _GENERAL.search(text) or _FIELDS.fullmatch(text):
        return False
    if text[0].islower() and len(_SENTENCE_END.split(text, maxsplit=1)[0].split()) > _LOWER_WORDS:
        return False
    shown = _SHOWN.search(text.split("\n", 1)[0])
    return not (_TALK.match(text) or _CLAUSE.match(text) or shown)


def is_quiet(unit: Unit) -> bool:
    """Whether its own log calls this harmless."""
    return bool(_QUIET.search(unit.prefix))


def is_rest(text: str) -> bool:
    """Whether a text starts in the middle of a sentence."""
    return bool(_REST.match(text))


def is_only_warned(unit: Unit) -> bool:
    """Whether its own log calls this a warning. Then it must also state what happened."""
    return bool(_WARNED.search(unit.prefix))


def is_human(text: str) -> bool:
    """Whether a person, or the model, says what they think or did. No message does."""
    return bool(_HUMAN.search(text))


def is_personal(text: str) -> bool:
    """Whether somebody speaks about themselves, other than to refuse."""
    return bool(_PERSON.search(text)) and not _REFUSES.match(text)


def is_guess(text: str) -> bool:
    """Whether somebody supposes something. A message knows."""
    return bool(_HEDGED.search(text))


def is_condition(sentence: str) -> bool:
    """Whether a sentence starts with a condition."""
    return bool(_CONDITION.match(sentence))


def is_advice(sentence: str) -> bool:
    """Whether a sentence says what to do."""
    return bool(_ADVICE.match(sentence))


def is_order(sentence: str) -> bool:
    """Whether a sentence tells somebody to do something, instead of what happened."""
    return bool(_ORDER.match(sentence))


def is_long(sentence: str) -> bool:
    """Whether a sentence has more words than a message does."""
    return len(sentence.split()) > _STATEMENT_WORDS


def is_name(words: str) -> bool:
    """Whether this is only the name of a thing."""
    return bool(_NAMED.match(words))


def is_explained(rest: str) -> bool:
    """Whether the rest explains what the words before it mean."""
    return bool(_EXPLAINED.match(rest))


def is_taken_back(rest: str) -> bool:
    """Whether the rest denies the words before it."""
    return bool(_TAKEN_BACK.match(rest))


def comes_to_the_point(sentence: str, start: int, end: int) -> bool:
    """Whether a sentence soon states the words from `start` to `end` as something that happened.
    What precedes a colon is where it happened: "…: premature close"."""
    begins = sentence.rfind(": ", 0, start) + 1
    lead = sentence[:start]
    if lead.count("`") % 2 or lead.count('"') % 2 or _NO.search(sentence[begins:start]):
        return False
    soon = len(sentence[begins:start].split()) <= _LEAD_WORDS
    return soon and not _HABIT.search(sentence[begins:end])
