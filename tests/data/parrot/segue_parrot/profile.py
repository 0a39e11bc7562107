"""What parrot's records say."""

from collections.abc import Iterable, Iterator

from segue.agents.contracts.profile import Profile, Record
from segue.agents.places import SessionStore
from segue.agents.shared.fields import JSON, amount, instant, text, whole
from segue.agents.signs import Signs
from segue.core.stops.events import Ended, Event, Limit, Other, Prompt, Reply, Started, Usage
from segue_parrot.counter import COUNTER

_KINDS = ("hello", "heard", "say", "limit", "bye")


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of its stream, which is its session file, too."""
    for record in records:
        data, kind = record.data, text(record.data, "squawk")
        mark: JSON = {"where": record.where, "at": instant(data.get("at"))}
        match kind:
            case "hello":
                yield Started(session_id=text(data, "session"), cwd=text(data, "cwd"), **mark)
            case "heard":
                yield Prompt(text=text(data, "text"), **mark)
            case "say":
                yield Reply(text=text(data, "text"), **mark)
                yield Usage(
                    used_tokens=amount(data, "used"),
                    window_tokens=whole(data, "window"),
                    **mark,
                )
            case "limit":
                yield Limit(resets_at=instant(data.get("resets_at")), rejected=True, **mark)
            case "bye":
                yield Ended(ok=True, **mark)
            case _:
                yield Other(kind=kind[:40] or "record", known=False, **mark)


def knows(record: JSON) -> bool:
    """Is this surely a record of parrot's?"""
    return record.get("squawk") in _KINDS


PROFILE = Profile(
    name="parrot",
    knows=knows,
    parse=parse,
    store=SessionStore(homes=("~/.parrot",), files=("sessions/*.jsonl",)),
    counter=COUNTER,
    signs=Signs(names=("parrot",), scripts=("bin/parrot",), session_flags=("--resume",)),
)
