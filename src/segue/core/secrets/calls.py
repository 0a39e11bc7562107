"""Keys that a program passes to a client without naming them: `Mailer("0f3…")`."""

from collections.abc import Iterator

from segue.core.secrets.rules import rule
from segue.core.secrets.values import is_opaque, is_placeholder

_CALL = (
    rb"([A-Za-z_][A-Za-z0-9_.]{2,60})\([ \t]*(?:[\"'][^\"'\n]{1,80}[\"'][ \t]*,[ \t]*){0,2}"
    rb"[\"']([A-Za-z0-9_.~+/=:-]{20,200})[\"'][ \t]*[,)]"
)
_MADE = rb"(?:^|\.)_?[A-Z][a-z]+[A-Za-z0-9]*$"  # a class, whose name consists of words
_OPENS = (
    rb"(?i)(?:^|[._])(?:init|login|connect|auth(?:enticate)?|configure|setup|start|use)$"
    rb"|(?:search|client|sdk|api|bot|mailer|storage)$"
)
_OF_IDS = (
    rb"(?i)hash|sha|md5|digest|crc|uu?id|guid|clsid|oid|id$|commit|revision|version|hex|bytes|byte"
    rb"|etag|blob|address|addr|version|number|decimal|int|float|date|time|path|file|url|uri|str|string"
    rb"|test|error|exception|warning|public|point|color|colour|regex|pattern|match|equal|array|buffer"
    rb"|big|block|transaction|tx|ref|tag|literal|element|node|image|module|import|require"
)
_OBJECT = (
    rb"(?i)\b[a-z0-9_.]*(?:api|client|sdk|auth)[a-z0-9_]*[({][^\n]{0,120}?\bkey[\"']?"
    rb"[ \t]*[:=][ \t]*[\"']([0-9a-f]{20,})[\"']"
)


def handed(data: bytes) -> Iterator[tuple[int, int]]:
    """The places of such keys."""
    if b"(" not in data:
        return
    for match in rule(_CALL).finditer(data):
        name, value = match.group(1), match.group(2)
        if not (rule(_MADE).search(name) or rule(_OPENS).search(name)):
            continue
        if rule(_OF_IDS).search(name) or is_placeholder(value) or not is_opaque(value):
            continue
        yield match.span(2)
    for match in rule(_OBJECT).finditer(data):
        if is_opaque(match.group(1)):
            yield match.span(1)
