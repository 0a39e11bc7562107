"""What a conversation knew, in short: made by rules from its events, at any moment of its life.

A task is full of facts that no file holds: what the user corrected half-way, why an approach was
dropped, which test fails and how, a port that a tool printed once. The agent can be asked for them
only while it lives and has room. A digest needs neither: `Builder` is fed every event of a session
as it happens and holds, in bounded memory, what a next session must know.

How it chooses, in this order:

1. The user's words are kept, all of them and in order; they are cut last.
2. What the agent said last is kept as it stands.
3. Of all else the agent said, `sentences` are kept that decide, find, drop, plan or ask.
   One that says the same of the same thing later replaces the earlier one, which is told with it.
4. Of what tools printed, the lines are kept that tell something (`excerpts`): all of what is short,
   first and last lines, errors, lines unlike the others of their output, what later words refer to.
   A line like a hundred others tells nothing. What can be read again from disk is named, not kept.
5. A call that is made again replaces the earlier one; a failure that was repaired is none.

`Digest` is what comes of it; `sections` lays it out for a prompt within a budget.
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
