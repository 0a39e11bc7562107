"""Facts that exist only in a conversation: how a step prints them, how the model states and
remembers them, and how a step asks for them. Pure.

A word is derived from the repository's first commit, so it is different in every play, and no
file contains it. What the model decides is its own word, and the step knows only its checksum.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha1
from zlib import crc32

from segue.drill.model.ask import Part
from segue.drill.scenarios.types import Job

_PRINTED = re.compile(r"\bfact ([1-9][0-9]?) is (?:now )?(w[0-9]{4,10})\b")
_DECIDED = re.compile(r"\bdecided to use (choice-[0-9]{4,10}) for fact ([1-9][0-9]?)\b")

Known = Mapping[int, str]


def known(parts: Sequence[Part]) -> dict[int, str]:
    """What a conversation tells of them, by number: the last word counts."""
    found: dict[int, str] = {}
    for part in parts:
        hits = [(m.start(), int(m[1]), m[2]) for m in _PRINTED.finditer(part.text)]
        hits += [(m.start(), int(m[2]), m[1]) for m in _DECIDED.finditer(part.text)]
        found |= {number: word for _, number, word in sorted(hits)}
    return found


def choice(number: int) -> str:
    """What the model decides."""
    return f"choice-{crc32(b'fact %d' % number) % 90_000 + 10_000}"


def said_before(job: Job, step: int) -> str:
    """What the model says with a step's command, if it decides something then."""
    said = [
        f"I decided to use {choice(number)} for fact {number}, because nothing else is free."
        for number, fact in enumerate(job.facts, 1)
        if fact.kind == "decided" and fact.told_in == step
    ]
    return " ".join(said)


def arguments(job: Job, step: int, words: Known) -> str:
    """What a step is given, as far as it is known."""
    needed = [number for number, fact in enumerate(job.facts, 1) if fact.needed_from <= step]
    return "".join(f" {words[number]}" for number in needed if number in words)


def lines(words: Known) -> list[str]:
    """The facts, as a summary tells them."""
    return [
        f"decided to use {word} for fact {number}"
        if word.startswith("choice-")
        else f"fact {number} is {word}"
        for number, word in sorted(words.items())
    ]


def explained(job: Job) -> str:
    """What the prompt says of them."""
    if not job.facts:
        return ""
    return (
        " Some steps need facts that were told before, in the order of their numbers:"
        " `sh job/step 9 FACT FACT`; a step that misses one says so, and is not done."
        " A fact is told once, by what a step prints or by your own decision."
    )


def check_script(job: Job) -> str:
    """The part of the step's script that asks for them."""
    pieces = ["shift"]
    for number, fact in enumerate(job.facts, 1):
        pieces.append(f'if [ "$n" -ge {fact.needed_from} ]; then')
        if fact.kind == "decided":
            said = choice(number).encode()
            wanted = sha1(b"blob %d\0%s" % (len(said), said), usedforsecurity=False).hexdigest()
            given = '"$(printf %s "$1" | git hash-object --stdin)"'
            pieces.append(f"    right=no; [ {given} = {wanted} ] && right=yes")
        else:
            name = "new" if fact.kind == "changed" else "word"
            pieces.append(f'    right=no; [ "$1" = "$(fact {number} {name})" ] && right=yes')
        pieces += [
            '    if [ "$right" = no ]; then',
            f"        echo \"step $n needs fact {number}, and was given '$1'\" >&2; exit 1",
            "    fi",
            "    shift",
            "fi",
        ]
    return "\n".join(pieces) if job.facts else ""


def tell_script(job: Job) -> str:
    """The part that prints them."""
    pieces = []
    for number, fact in enumerate(job.facts, 1):
        if fact.kind == "decided":
            continue
        pieces.append(_tells(number, fact.told_in, "word"))
        if fact.kind == "changed" and fact.changed_in is not None:
            pieces.append(_tells(number, fact.changed_in, "new", " now"))
    return "\n".join(pieces)


def _tells(number: int, step: int, name: str, now: str = "") -> str:
    return f'[ "$n" -ne {step} ] || echo "fact {number} is{now} $(fact {number} {name})"'


FUNCTION = """\
fact() {
    first=$(git rev-list --max-parents=0 HEAD | tail -n 1)
    printf 'w%s' "$(printf '%s %s %s' "$first" "$1" "$2" | cksum | cut -d' ' -f1)"
}
"""
