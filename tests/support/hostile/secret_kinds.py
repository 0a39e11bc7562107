"""Kinds of secrets in the texts in which they are met, with values made at test time.

`data/secrets/kinds.txt` was collected before the rules were written. Its vendors are split by the
hash of their names: rules may be written for the one half (`developed`), the other is held out."""

import base64
import hashlib
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "data" / "secrets"

_ALPHABETS = {
    "w": string.ascii_letters + string.digits,
    "u": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "x": "0123456789abcdef",
    "X": "0123456789ABCDEF",
    "U": string.ascii_uppercase + string.digits,
    "L": string.ascii_lowercase + string.digits,
    "B": string.ascii_uppercase + "234567",
    "d": string.digits,
    "s": string.ascii_letters + string.digits + "!#$%&()*+,-./:;<=>?@[]^_{|}~",
}
_WORDS = ("otter", "maple", "violet", "harbor", "copper", "lantern", "meadow", "falcon", "juniper")


@dataclass(frozen=True)
class Kind:
    vendor: str
    name: str
    text: str
    secrets: tuple[str, ...]

    @property
    def developed(self) -> bool:
        """Whether rules may be written for it; the others are held out."""
        return hashlib.sha256(self.vendor.encode()).digest()[0] % 2 == 0

    def survivors(self, text: str) -> list[str]:
        """Which of its secrets, or ten characters of them in a row, the text still holds."""
        return [
            secret
            for secret in self.secrets
            if any(secret[place : place + 10] in text for place in range(max(1, len(secret) - 9)))
        ]


def kinds(seed: int = 1, file: str = "kinds.txt") -> list[Kind]:
    return list(_read((FOLDER / file).read_text(encoding="utf-8"), seed))


def _read(text: str, seed: int) -> Iterator[Kind]:
    for block in re.split(r"(?m)^## ", text)[1:]:
        title, _, body = block.partition("\n")
        vendor, _, name = title.partition(": ")
        text = filled(body.rstrip("\n"), f"{seed} {title}")
        secrets = tuple(re.findall(r"«(.*?)»", text, re.DOTALL))
        yield Kind(vendor, name, text.replace("«", "").replace("»", ""), secrets)


def filled(text: str, seed: int | str) -> str:
    """With random characters for each ‹…›, always the same ones of a seed."""
    return re.sub(r"‹(\w+)›", partial(_filled, draw=random.Random(seed)), text)


def _filled(match: re.Match[str], draw: random.Random) -> str:
    return _made(match[1], draw)


def _made(form: str, draw: random.Random) -> str:
    match form:
        case "p":  # as people choose them
            word = draw.choice(_WORDS).title()
            return (
                f"{word}{draw.choice('!#%+-_.')}{draw.randrange(1000, 10_000)}{draw.choice('xyz')}"
            )
        case "uuid":
            digits = _drawn("x", 32, draw)
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        case "jwt":
            head, claims = (
                base64.urlsafe_b64encode(json.encode()).decode().rstrip("=")
                for json in ('{"alg":"HS256"}', f'{{"sub":"{_drawn("d", 10, draw)}"}}')
            )
            return f"{head}.{claims}.{_drawn('u', 43, draw)}"
        case "basic":
            return base64.b64encode(f"dev:{_made('p', draw)}".encode()).decode()
        case "pem" | "pemj":
            return ("\n" if form == "pem" else "\\n").join(_drawn("b", 64, draw) for _ in range(4))
        case "pem1":
            return _drawn("b", 64, draw)
    return _drawn(form[0], int(form[1:]), draw)


def _drawn(alphabet: str, number: int, draw: random.Random) -> str:
    signs = _ALPHABETS[alphabet]
    drawn = [draw.choice(signs) for _ in range(number)]
    if alphabet not in "dX" and number >= 4:  # as any real key has
        drawn[number // 2] = draw.choice("234567")
    return "".join(drawn)
