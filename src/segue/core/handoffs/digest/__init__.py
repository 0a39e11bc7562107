"""What a conversation knew, in short: extracted by rules from its events, at any time.

A task is full of facts that are in no file: what the user corrected half-way, why an approach was
dropped, which test fails and how, a port that a tool printed once. The agent can be asked for them
only while it is alive and has room. A digest needs neither: `Builder` takes every event of a
session as it happens and keeps, in bounded memory, what the next session must know.

How it chooses, in this order:

1. It keeps all of the user's words, in order. They are cut last.
2. It keeps the agent's last words unchanged.
3. Of everything else that the agent said, it keeps sentences that decide, find, drop, plan or ask
   (`sentences`). A later sentence about the same thing replaces the earlier one and mentions it.
4. Of tools' output, it keeps the important lines (`excerpts`): everything that is short, first and
   last lines, errors, lines unlike the others of their output, and what later words refer to.
   A line like a hundred others says nothing. What can be read again from disk is only named.
5. A repeated call replaces the earlier one, and a failure that was fixed is no longer one.

`Digest` is the result; `sections` lays it out for a prompt within a budget.
"""

from segue.core.handoffs.digest.arrival import Arrival, Repeats
from segue.core.handoffs.digest.builder import Builder
from segue.core.handoffs.digest.compactions import Compactions, left_out
from segue.core.handoffs.digest.parts import budget_chars, sections
from segue.core.handoffs.digest.types import (
    CommandResult,
    Digest,
    FileTouched,
    Statement,
    UserPrompt,
)

__all__ = [
    "Arrival",
    "Builder",
    "CommandResult",
    "Compactions",
    "Digest",
    "FileTouched",
    "Repeats",
    "Statement",
    "UserPrompt",
    "budget_chars",
    "left_out",
    "sections",
]
