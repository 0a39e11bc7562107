"""Who an agent is signed in as: the contract, and code that the agents share.

What distinguishes accounts may be a secret, or identify a person: it is hashed at once, and
nothing else of it leaves the callers of this module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL with it
except ImportError:  # not CPython
    from hashlib import blake2b

Env = Mapping[str, str]
Kind = Literal["", "plan", "key"]


class Login(Struct, frozen=True, kw_only=True):
    """The account, as far as the agent's flags, variables and files reveal it."""

    home: str  # its config home
    who: str = ""  # a hash; "" if nothing identifies the account, and the home stands for it
    kind: Kind = ""  # the user's plan, or a key that is paid by use


LoginOf = Callable[[Sequence[str], Env, str], Login]
"""By the user's flags, the environment and the working folder."""


def hashed(*parts: str) -> str:
    """A short hash of what distinguishes an account; the same on every machine."""
    data = "\0".join(parts).encode("utf-8", "surrogateescape")
    return blake2b(data, digest_size=5, person=b"segue-account").hexdigest()


def by_key(env: Env, *names: str, also: str = "") -> str:
    """The hash of the first of these variables that is set; "" if none is. `also`: what else
    belongs to the identity, such as the address that the key is sent to."""
    return next((hashed(name, env[name], also) for name in names if env.get(name)), "")
