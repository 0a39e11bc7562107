"""What the user can do about a stop, in a sentence or two."""

from segue.core.stops.reasons import Resume, StopReason


def remedy(
    reason: StopReason,
    *,
    resume: Resume = "none",
    sure: bool = True,
    past: bool = False,
    scope: str | None = None,
    window_tokens: int | None = None,
) -> str:
    """The remediation for a reason, with the details that are known. `sure`: certain enough to act
    on. `past`: the stated reset has passed."""
    text = reason.facts.remedy
    if reason is StopReason.RATE_LIMIT and past:
        return "The limit has reset: resume the same session."
    if reason is StopReason.USER_EXIT and not sure and resume == "none":
        return (
            f"{text} A reboot or a lost connection may look the same: use --ended-by if you"
            f" know more."
        )
    if reason is StopReason.USER_EXIT and resume != "none":
        return "Session ended by user; resumed anyway, because your policy says so."
    if reason is StopReason.RATE_LIMIT and scope == "model":
        return "This model's limit is reached: wait for its reset, or resume with another model."
    if reason is StopReason.CONTEXT_EXHAUSTED and window_tokens:
        return text.replace("a larger window", f"a window larger than {window_tokens:,} tokens")
    return text
