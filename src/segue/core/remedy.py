"""What the user must do, in one sentence or two (seed 003: actionable messages)."""

from segue.core.stop import Resume, StopReason

_REMEDIES = {
    StopReason.RATE_LIMIT: (
        "Wait until the limit resets, then resume the same session. To go on now, use another "
        "model or account plan."
    ),
    StopReason.COMPLETED: "Nothing to do.",
    StopReason.CONTEXT_EXHAUSTED: (
        "Start a new session with a checkpoint of this one; resuming it would fail the same way. "
        "Smaller tasks, or a model with a larger window, avoid it."
    ),
    StopReason.BILLING: (
        "Add credit, raise the cap or change the plan with the provider; waiting does not help."
    ),
    StopReason.AUTH: "Sign in again or correct the API key, then resume the same session.",
    StopReason.MAX_BUDGET: "Raise the budget that was set for this work, then resume the session.",
    StopReason.MAX_TURNS: "Raise the turn limit, then resume the same session: its work is kept.",
    StopReason.REFUSAL: "Reword the task or do this part by hand; as it is, it is refused again.",
    StopReason.OVERLOADED: "Try the same session again in a while; nothing is wrong with it.",
    StopReason.TIMEOUT: (
        "Resume the same session if it had made progress; else raise the time limit or split the "
        "task."
    ),
    StopReason.CRASH: (
        "Resume the same session; if it does not load, start a new one from what was kept. Check "
        "memory if it happens again."
    ),
    StopReason.NEEDS_USER: "Answer the agent's question or grant the permission; it goes on then.",
    StopReason.ERROR: "Read the error; the same request would fail again.",
    StopReason.USER_EXIT: "Session ended by user, not auto-resuming.",
    StopReason.UNKNOWN: "Look at the end of the output; nothing in it says why it stopped.",
}


def remedy(
    reason: StopReason,
    *,
    resume: Resume = "none",
    sure: bool = True,
    past: bool = False,
    scope: str | None = None,
    window_tokens: int | None = None,
) -> str:
    """The remediation text for a reason, with what is known of the case. `sure`: enough to act on;
    `past`: the stated reset is over."""
    text = _REMEDIES[reason]
    if reason is StopReason.RATE_LIMIT and past:
        return "The limit has reset: resume the same session."
    if reason is StopReason.USER_EXIT and not sure and resume == "none":
        return f"{text} A reboot or a lost connection may look the same: --ended-by says more."
    if reason is StopReason.USER_EXIT and resume != "none":
        return "Session ended by user; resumed all the same, because the policy says so."
    if reason is StopReason.RATE_LIMIT and scope == "model":
        return "This model's limit is reached: wait for its reset, or resume with another model."
    if reason is StopReason.CONTEXT_EXHAUSTED and window_tokens:
        return text.replace("a larger window", f"a window larger than {window_tokens:,} tokens")
    return text
