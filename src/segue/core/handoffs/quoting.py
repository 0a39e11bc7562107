"""Quotes foreign text inside a prompt. The name of a file, command, todo or tool can be
anything, including a heading followed by an instruction. Here it stays one line of a list, or
lines of a quotation."""

import json
import re

_ENDS = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_BREAKS = re.compile(rf"[ \t]*(?:{_ENDS.pattern})[ \t]*")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
_BLOCK = re.compile(
    r"#{1,6}(?:\s|$)|`{3}|~{3}|>|[-+*](?:\s|$)|\d{1,9}[.)](?:\s|$)|<|={1,}\s*$|\[[^\]]*\]:"
    r"|(?:-\s*){2,}$|(?:\*\s*){3,}$|(?:_\s*){3,}$"
)
"""What begins a block in Markdown, also inside a list."""
BREAK = " ⏎ "
_AUTOMATIC = "This message is automatic"  # in all of segue's prompts; users may have their own


def is_automatic(prompt: str) -> bool:
    """Whether a prompt is segue's, not its user's."""
    return _AUTOMATIC in prompt[:500]


def line(text: str) -> str:
    """The text on one line, with line breaks made visible."""
    if text.isprintable() and "  " not in text and BREAK not in text:
        return text.strip()  # most texts; nothing below would change them
    one = _BREAKS.sub(BREAK, text.strip()).replace("\t", " ")
    one = re.sub(rf"(?:{BREAK}){{2,}}", BREAK, one)
    return re.sub(" {2,}", " ", _UNSEEN.sub(lambda m: f"\\x{ord(m[0]):02x}", one)).strip()


def below(text: str) -> str:
    """A line of a program's output below an item, with its own indentation: indented so far that
    no block can begin there."""
    if text.isprintable():
        return f"      {text}"  # most lines; they contain no line break
    return f"      {_BREAKS.sub(BREAK, text.strip(chr(10)))}"


def item(text: str) -> str:
    """The same at the start of a list item, where it cannot begin anything else."""
    one = line(text)
    if not _BLOCK.match(one):
        return one
    ticks = "`" * (max(map(len, re.findall("`+", one)), default=0) + 1)
    return f"{ticks} {one} {ticks}"


def name(path: str) -> str:
    """A path unchanged; a path that would not be displayed as it is becomes a JSON string, so
    that it can still be opened."""
    is_plain = path.isprintable() and path == path.strip()
    return item(path) if is_plain else json.dumps(path)


def quotation(text: str) -> str:
    """The text as a quotation: no heading, fence or list in it continues below."""
    lines = _ENDS.split(text.strip("\n"))
    return "\n".join(f"> {each}".rstrip() for each in lines) if text.strip() else ""


def indented(text: str) -> str:
    """Lines indented like code."""
    return "\n".join(f"    {each}" for each in _ENDS.split(text)) if text else ""
