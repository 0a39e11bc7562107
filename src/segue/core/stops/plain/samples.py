"""What is shown, not said: the shapes of samples, tables, calls and output inside a text.

Documents and source code show messages that nobody receives. Each shape here is one of a line; the
lines that belong to it are muted (`text.py`).
"""

from segue.core.lazy_pattern import lazy_pattern

_CLOSING = lazy_pattern(r"^[\]}]*[)][\]})]*[,;]$")
_ENTRY = lazy_pattern(r"^(?P<q>[\"']?)(?P<key>[A-Za-z][\w.-]{0,60})(?P=q)\s*:\s*([\"'`]).*\3,?$")
_BODY_KEYS = lazy_pattern(
    r"(?i)(?:error|err)[_-]?(?:s|type|message|code)?|(?:request|session|uu)?[_-]?id|message|msg|type|code"
    r"|status(?:[_-]?code)?|param|reason|details?|cause|name|title|description|timestamp|time|level"
    r"|severity|stack|text|domain|service|object|model|provider|event|url|method|path|errno|syscall"
    r"|address|host(?:name)?|body|data|subtype|result|logger|component|role|content|exception"
    r"|traceback|responsebody|source|hint"
)
"""The keys of an error's own body."""
_RESULT_HEAD = lazy_pattern(
    r"(?i)\b(?:function|tool|command|shell) (?:output|result|response)s?:?$"
)
_HEREDOC = lazy_pattern(r"^\w.*<<-?\s?['\"]?([A-Z]\w{1,20})['\"]?(?:\s|$)")


def is_closing(said: str) -> bool:
    """Whether this closes a call in source code; a body above it is its argument."""
    return bool(_CLOSING.match(said))


def is_entry(said: str) -> bool:
    """Whether this is a key with a text, as tables of messages and translations have them."""
    found = _ENTRY.match(said)
    return found is not None and not _BODY_KEYS.fullmatch(found["key"])


def heads_result(said: str) -> bool:
    """Whether this line says that the output of a tool follows."""
    return bool(_RESULT_HEAD.search(said))


def heredoc(said: str) -> str:
    """The word that ends the text which a shell reads from here on; "" if it reads none."""
    found = _HEREDOC.search(said)
    return found[1] if found else ""


def is_comment(said: str) -> bool:
    """Whether this is a comment of a program; a body right below it is a sample."""
    return said.startswith(("// ", "/* ", "/** "))
