"""What the scripted model says besides its work: summaries, checkpoints, titles. Pure."""

from collections.abc import Collection, Sequence

from segue.drill.model.ask import Ask

_WAY = "One command at a time, in the foreground. `sh job/show` lists what is done already."


def title(ask: Ask, known: Collection[int], steps: int, facts: Sequence[str] = ()) -> str:
    """A title, the same for every session."""
    return "Numbered steps job"


def other(ask: Ask, known: Collection[int], steps: int, facts: Sequence[str] = ()) -> str:
    """The answer to any other request besides the work."""
    return "OK."


def summary(ask: Ask, known: Collection[int], steps: int, facts: Sequence[str] = ()) -> str:
    """A summary in the requested form: the request itself names the tags."""
    text = "\n".join(
        [f"The job: {steps} numbered steps, by sh job/step.", *_lines(known, steps), *facts]
    )
    if _asks_for(ask, "<summary>"):
        return f"<analysis>\nThe steps so far.\n</analysis>\n\n<summary>\n{text}\n</summary>"
    if _asks_for(ask, "state_snapshot"):
        return f"<state_snapshot>\n{text}\n</state_snapshot>"
    return text


def checkpoint(ask: Ask, known: Collection[int], steps: int, facts: Sequence[str] = ()) -> str:
    """A checkpoint for the next session: the document, in the tags that segue asks for."""
    decisions = "\n".join(facts) or "none"
    return f"<checkpoint>\n{document(known, steps, decisions=decisions)}\n</checkpoint>"


def document(
    known: Collection[int], steps: int, facts: Sequence[str] = (), decisions: str = ""
) -> str:
    """A handoff document: the goal, the steps done, the steps left, the facts."""
    decisions = decisions or "\n".join((_WAY, *facts))
    done = "\n".join(_lines(known, steps)) or "none known"
    left = [step for step in range(1, steps + 1) if step not in known]
    rest = f"from step {left[0]} on, by sh job/step" if left else "none: say so and end"
    return f"""## Goal
All {steps} numbered steps of the job, in order, each exactly once.
## Completed work
{done}
## Remaining tasks
{rest}
## Do not redo
{"the steps above" if known else "nothing"}
## Key decisions
{decisions}"""


def _asks_for(ask: Ask, tag: str) -> bool:
    return any(tag in part.text for part in ask.parts if part.role in ("system", "user"))


def _lines(known: Collection[int], steps: int) -> list[str]:
    return [f"step {step} of {steps} done" for step in sorted(known)]
