"""Types for what records contain besides replies: the agent's own todo list, and the limits of the
user's plan."""

from typing import Literal

from msgspec import Struct

TodoStatus = Literal["pending", "in_progress", "completed"]


class Todo(Struct, frozen=True):
    """One item of the agent's own list."""

    text: str
    status: TodoStatus = "pending"


class LimitSeen(Struct, frozen=True):
    """What a record last said about one of the plan's limits."""

    used_percent: float | None = None
    resets_at: float | None = None
    seen_at: float | None = None
    rejected: bool = False
