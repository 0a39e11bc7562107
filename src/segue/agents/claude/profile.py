"""Claude Code and the Agent SDK: which records are theirs, and how they behave.

`claude/records` reads the content of the records, which other agents share.
"""

from collections.abc import Iterable

from segue.agents.claude.records import Events, Reader, is_stop_failure, resembles
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import JSON, items, obj, text


def knows(record: JSON) -> bool:
    """Whether this is certainly Claude Code's record. Qwen Code prints nearly the same stream, so
    what both have is not enough."""
    kind, subtype, message = text(record, "type"), text(record, "subtype"), obj(record, "message")
    if "qwen_code_version" in record or "parts" in message or "provenance" in record:
        return False
    if kind in ("user", "assistant", "attachment", "system") and "isSidechain" in record:
        return True
    match kind:
        case "assistant":
            named = text(message, "model").startswith(("claude", "<synthetic>"))
            return named or text(message, "id").startswith("msg_")
        case "user":
            blocks = items(message, "content")
            return any(text(block, "tool_use_id").startswith("toolu_") for block in blocks)
        case "result":
            mine = {"total_cost_usd", "terminal_reason", "modelUsage", "stop_reason"}
            return "is_error" in record and (
                "permission_denials" not in record or not mine.isdisjoint(record)
            )
        case "system" if subtype == "init":
            return "claude_code_version" in record or "apiKeySource" in record
        case "system":
            return subtype in ("api_retry", "hook_started", "hook_response")
        case "rate_limit_event":
            return "rate_limit_info" in record
        case "queue-operation" | "last-prompt" | "cost-state" | "file-history-snapshot":
            return True
        case "":
            marked = "error_type" in record or text(record, "hook_event_name") == "StopFailure"
            stopped = is_stop_failure(record) and (marked or len(record) == 2)
            return stopped or {"is_error", "subtype", "num_turns"} <= set(record)
    return False


def parse(records: Iterable[Record]) -> Events:
    """Stream, result object, transcript or StopFailure inputs, oldest first."""
    return Reader().parse(records)


def _enforced(window: int) -> int | None:
    # Measured: with 1M it compacts by itself; with 200K it waits until the provider refuses.
    return window - 33_000 if window > 200_000 else None


# A signal leaves no result; its exit codes (143, 129) are what shells report for any program.
PROFILE = Profile(
    name="claude",
    knows=knows,
    resembles=resembles,
    parse=parse,
    zero_means_done=True,
    windows={"": 1_000_000},
    enforced=_enforced,
)
