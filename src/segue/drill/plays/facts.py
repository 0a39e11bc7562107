"""Facts that exist only in a conversation: how a step prints them, how the model states and
remembers them, and how a step asks for them. Pure.

A value is derived from the repository's first commit, so it is different in every play, and no
file contains it. What the model decides is its own word, and the step knows only its checksum.
A scenario may choose the words in which a fact is told; the model knows it by these words.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from zlib import crc32

from segue.drill.model.ask import Part
from segue.drill.scenarios.types import Job, ScenarioFact

_VALUE = {
    "word": r"(?<![\w-])w[0-9]{4,10}\b",
    "number": r"(?<![\w-])[2-6][0-9]{4}\b",
    "letters": r"(?<![\w-])q[aeioubdgkl]{4,10}\b",
}
_CHOICE = r"\bchoice-[0-9]{4,10}\b"
_GAP = "{}"
_WITHDRAWN = "; {} was wrong"
_LATER = re.compile(r"[^\n]{0,80}?\(later: ([^\s()]+)\)")  # as segue marks an outdated value
_PRINTED = re.compile(r"\bfact ([1-9][0-9]?) is (?:now )?(w[0-9]{4,10})\b")
_TAKEN_BACK = re.compile(r"\bfact ([1-9][0-9]?) is now w[0-9]{4,10}, not (w[0-9]{4,10})\b")
_FORBIDDEN = re.compile(r"\bdo not touch (keep/([1-9][0-9]?))\b", re.IGNORECASE)
_DECIDED = re.compile(r"\bdecided to use (choice-[0-9]{4,10}) for fact ([1-9][0-9]?)\b")

Known = Mapping[int, str]


def stated(parts: Sequence[Part], job: Job) -> dict[int, str]:
    """The facts that a conversation states: their values by number. The last value counts, and one
    that was taken back never does. For a forbidden file, the value is its name."""
    found: dict[int, str] = {}
    worded = {
        number: (_worded(fact, fact.wording), _worded(fact, _WITHDRAWN))
        for number, fact in enumerate(job.facts, 1)
        if fact.wording
    }
    wrong = {(int(m[1]), m[2]) for part in parts for m in _TAKEN_BACK.finditer(part.text)}
    for number, (_, withdrawn) in worded.items():
        wrong |= {(number, m[1]) for part in parts for m in withdrawn.finditer(part.text)}
    for part in parts:
        hits = [(m.start(), int(m[1]), m[2]) for m in _PRINTED.finditer(part.text)]
        hits += [(m.start(), int(m[2]), m[1]) for m in _DECIDED.finditer(part.text)]
        hits += [(m.start(), int(m[2]), m[1]) for m in _FORBIDDEN.finditer(part.text)]
        for number, (pattern, _) in worded.items():
            hits += [
                (m.start(), number, _newest(m, part.text)) for m in pattern.finditer(part.text)
            ]
        found |= {number: word for _, number, word in sorted(hits) if (number, word) not in wrong}
    return found


def _newest(match: re.Match[str], text: str) -> str:
    later = _LATER.match(text, match.end())
    return match[1] if later is None else later[1]


def _worded(fact: ScenarioFact, wording: str) -> re.Pattern[str]:
    """A pattern that finds the value of a fact in this wording, whatever blanks and line breaks are
    between its words."""
    before, _, after = (
        r"\s+".join(map(re.escape, re.split(r"\s+", side))) for side in wording.partition(_GAP)
    )
    value = _CHOICE if fact.kind == "decided" else _VALUE[fact.value]
    return re.compile(f"{before}({value}){after}", re.IGNORECASE)


def kept_file(number: int) -> str:
    """The file that a forbidden fact is about."""
    return f"keep/{number}"


def forbidden(job: Job) -> list[str]:
    """All files that must not be touched."""
    return [kept_file(n) for n, fact in enumerate(job.facts, 1) if fact.kind == "forbidden"]


def meddled(job: Job, step: int, words: Known) -> str:
    """The command with which a model that does not know of forbidden files overwrites them before a
    step; "" if it knows of all."""
    files = [
        kept_file(number)
        for number, fact in enumerate(job.facts, 1)
        if fact.kind == "forbidden" and fact.needed_from <= step and number not in words
    ]
    return "".join(f"echo tidied >{file}; " for file in files)


def user_message(job: Job, step: int, word: Callable[[int, str], str]) -> str:
    """What the user says while a step runs; "" if nothing. `word` returns a value of a fact, by the
    fact's number and "word" (the first value) or "new" (the last)."""
    sentences = []
    for number, fact in enumerate(job.facts, 1):
        if fact.spoken_in != step:
            continue
        if fact.kind == "told":
            fact_text = _sentence(fact, number, word(number, "word"))
            sentences.append(f"One thing I had not told you: {fact_text}.")
        elif fact.kind == "corrected":
            old, new = word(number, "word"), word(number, "new")
            if fact.wording:
                sentences.append(
                    f"No, {_sentence(fact, number, new)}{_WITHDRAWN.replace(_GAP, old)}."
                )
            else:
                sentences.append(f"Correction: fact {number} is now {new}, not {old}.")
        else:
            sentences.append(f"Do not touch {kept_file(number)}.")
    return " ".join(sentences)


def _sentence(fact: ScenarioFact, number: int, value: str) -> str:
    return fact.wording.replace(_GAP, value) if fact.wording else f"fact {number} is {value}"


def choice(number: int) -> str:
    """The value that the model decides on."""
    return f"choice-{crc32(b'fact %d' % number) % 90_000 + 10_000}"


def said_before(job: Job, step: int) -> str:
    """What the model says with a step's command if it makes a decision there; "" otherwise."""
    earlier = [
        f"That went as it should; {_sentence(fact, number, choice(number))}, and all else stays."
        if fact.wording
        else f"I decided to use {choice(number)} for fact {number}, because nothing else is free."
        for number, fact in enumerate(job.facts, 1)
        if fact.kind == "decided" and fact.told_in == step
    ]
    return " ".join(earlier)


def arguments(job: Job, step: int, words: Known) -> str:
    """The arguments of a step's command: the values of the facts that it needs, as far as the model
    knows them."""
    needed = [
        number
        for number, fact in enumerate(job.facts, 1)
        if fact.needed_from <= step and fact.kind != "forbidden"
    ]
    return "".join(f" {words[number]}" for number in needed if number in words)


def lines(words: Known, job: Job) -> list[str]:
    """The facts as lines of a summary."""
    return [_line(job.facts[number - 1], number, word) for number, word in sorted(words.items())]


def _line(fact: ScenarioFact, number: int, word: str) -> str:
    if fact.wording:
        return _sentence(fact, number, word)
    if word == kept_file(number):
        return f"do not touch {word}"
    is_choice = word.startswith("choice-")
    return f"decided to use {word} for fact {number}" if is_choice else f"fact {number} is {word}"


def explained(job: Job) -> str:
    """What the prompt says about facts and forbidden files; "" if the job has none."""
    needed = [fact for fact in job.facts if fact.kind != "forbidden"]
    explanation = (
        " Some steps need facts that were told before, in the order of their numbers:"
        " `sh job/step 9 FACT FACT`; a step that misses one says so, and is not done."
        " A fact is told once, by what a step prints, by the user or by your own decision."
    )
    files = [
        f" Do not touch {kept_file(number)}."
        for number, fact in enumerate(job.facts, 1)
        if fact.kind == "forbidden" and not fact.told_in
    ]
    return (explanation if needed else "") + "".join(files)


def check_script(job: Job) -> str:
    """The part of the step's script that checks the facts given as arguments."""
    pieces = ["shift"]
    for number, fact in enumerate(job.facts, 1):
        if fact.kind == "forbidden":
            continue
        pieces.append(f'if [ "$n" -ge {fact.needed_from} ]; then')
        if fact.kind == "decided":
            answer = choice(number).encode()
            wanted = sha1(b"blob %d\0%s" % (len(answer), answer), usedforsecurity=False).hexdigest()
            given = '"$(printf %s "$1" | git hash-object --stdin)"'
            pieces.append(f"    right=no; [ {given} = {wanted} ] && right=yes")
        else:
            name = "new" if fact.kind in ("changed", "corrected") else "word"
            pieces.append(f'    right=no; [ "$1" = "$(fact {number} {name})" ] && right=yes')
        pieces += [
            '    if [ "$right" = no ]; then',
            f"        echo \"step $n needs fact {number}, and was given '$1'\" >&2; exit 1",
            "    fi",
            "    shift",
            "fi",
        ]
    return "\n".join(pieces) if job.facts else ""


def tell_script(job: Job, *, amid: bool) -> str:
    """The part of the step's script that prints facts: those that come before its other output, or
    (`amid`) those in the middle of it."""
    pieces = []
    for number, fact in enumerate(job.facts, 1):
        if fact.kind not in ("printed", "changed", "corrected") or fact.amid is not amid:
            continue
        pieces.append(_tells(job, number, fact.told_in, "word"))
        if fact.kind == "changed":
            for place, step in enumerate(fact.changes, 1):
                name = "new" if place == len(fact.changes) else f"new{place}"
                pieces.append(_tells(job, number, step, name, now=" now"))
    return "\n".join(pieces)


def _tells(job: Job, number: int, step: int, name: str, now: str = "") -> str:
    fact = job.facts[number - 1]
    wording = fact.wording or f"fact {number} is{now} {_GAP}"
    is_item = fact.amid and job.prints == "data"
    wording = f'{{"id": 0, {wording}}}, ' if is_item else f"{wording}\n"
    before, _, after = (text.replace("\\", r"\\").replace("%", "%%").replace("\n", r"\n")
                        for text in wording.partition(_GAP))  # fmt: skip
    text = shlex.quote(f"{before}%s{after}")
    return f'[ "$n" -ne {step} ] || printf -- {text} "$(fact {number} {name})"'


def function(job: Job) -> str:
    """The shell function that prints a fact's value."""
    forms = {"number": [], "letters": []}  # type: dict[str, list[str]]
    for number, fact in enumerate(job.facts, 1):
        if fact.value in forms:
            forms[fact.value].append(str(number))
    cases = [f"    {'|'.join(numbers)}) {_FORMED[form]} ;;\n" for form, numbers in forms.items()
             if numbers]  # fmt: skip
    return _FUNCTION.replace("@CASES@", "".join(cases))


_FORMED = {
    "number": "printf %s $((sum % 45000 + 20000))",
    "letters": 'printf \'q%s\' "$(printf %s "$sum" | tr 0-9 aeioubdgkl)"',
}
_FUNCTION = """\
fact() {
    first=$(git rev-list --max-parents=0 HEAD | tail -n 1)
    sum=$(printf '%s %s %s' "$first" "$1" "$2" | cksum | cut -d' ' -f1)
    case $1 in
@CASES@    *) printf 'w%s' "$sum" ;;
    esac
}
"""
