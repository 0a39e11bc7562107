"""Tells a session what its own compaction left out, by the first channel that its agent has:
between the compaction and the next request, in a message while it works, or by a resume.

Anything here may be requested twice, by two processes of which the first was killed; the leg's
folder shows what was already done.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from segue.core.handoffs.digest import Builder, left_out
from segue.core.runs.machine.moves import too_large_to_resume
from segue.core.runs.types import Run, RunState, StartLeg
from segue.core.secrets.redact import redact
from segue.runs.briefing.prompts import Prompts
from segue.runs.folders import read, read_json, write, write_json
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.trackers.halts import Halt

RECALLED = "recalled"
"""The file in the folder of a leg whose prompt says what its session's own compaction left out."""
_READY_AT = 0.5  # of the window: no agent compacts before
_CATCH_UP_S = 0.5  # until the stream shows the compaction in which the agent waits


class Recall(Struct, frozen=True):
    """What a session is told about one of its compactions. `halt`: its agent waits for that.
    `is_cut`: its turn is interrupted first. `is_part`: not all that could be said."""

    compaction: int
    known: str
    halt: Halt | None = None
    is_cut: bool = False
    is_part: bool = False


class Recaller:
    """Makes up for the compactions of one run's sessions. `folder_of` returns the folder of a
    leg."""

    def __init__(self, prompts: Prompts, digest: Builder, folder_of: Callable[[int], Path]) -> None:
        self._prompts, self._digest, self._folder_of = prompts, digest, folder_of
        self._is_ready = False

    def due(self, run: Run, follower: LegFollower, *, is_free: bool) -> Recall | None:
        """What this leg's session must be told now; None if nothing. `is_free`: it may be told
        something. An agent that waits always gets an answer, if only that there is nothing."""
        self._get_ready(run)
        recalls = follower.recalls
        if recalls.halts is not None:
            halt = recalls.halts.waiting(follower.times.clock.awake())
            if halt is not None:
                return self._halted(run, follower, halt, is_free=is_free)
            recalls.see_halts()
        if not is_free or not run.policy.recall_after_compaction or follower.has_more:
            return None
        if follower.turn_is_over or follower.is_closed or follower.answer is not None:
            return None
        if (rest := self._rest(run, follower)) is not None:
            return rest
        # Unless it certainly continues, a tool call since then must show that it does: a message
        # after the end of a turn would begin another.
        compactions, leg = follower.compactions, follower.leg
        goes_on = compactions.works_after == compactions.count or is_told_at_once(follower)
        if compactions.count <= recalls.last_sent or not goes_on:
            return None
        if not run.abilities.talks and not _can_be_replaced(run, follower):
            return None
        recalls.last_sent = compactions.count
        if leg.status().state != "running" or leg.has_command(_key(compactions.count)):
            return None
        known = self._left_out(run, compactions.summary)
        is_cut = is_told_at_once(follower) and follower.drive.interrupt != b""
        return Recall(compactions.count, known, is_cut=is_cut) if known else None

    def _halted(
        self, run: Run, follower: LegFollower, halt: Halt, *, is_free: bool
    ) -> Recall | None:
        """For an agent that waits in its compaction."""
        compactions = follower.compactions
        number = compactions.count + 1
        if not is_free or not run.policy.recall_after_compaction:
            return Recall(number, "", halt)
        if follower.has_more or not compactions.is_under_way:
            # Its stream is read first; a sub-agent's compaction is never in it.
            has_time = follower.times.clock.awake() - halt.since < _CATCH_UP_S
            return None if has_time else Recall(number, "", halt)
        around = self._prompts.recall("", moment="at_work")  # the user may have a longer template
        max_chars = max(0, follower.drive.halt_chars - len(around))
        known = self._left_out(run, halt.summary)
        if len(known) <= max_chars:
            return Recall(number, known, halt)
        known = self._left_out(run, halt.summary, max_chars)
        return Recall(number, known, halt, is_part=True)

    def _rest(self, run: Run, follower: LegFollower) -> Recall | None:
        """What did not fit into the words that it was given while it waited. It has begun to work,
        so that can come with the result of its tool."""
        recalls, compactions = follower.recalls, follower.compactions
        count, halts = compactions.count, recalls.halts
        if halts is None or not halts.earlier:
            return None
        if not count == recalls.last_received == halts.last_received == compactions.works_after:
            return None
        earlier, halts.earlier = halts.earlier, ""
        leg = follower.leg
        if leg.status().state != "running" or leg.has_command(_key(count)):
            return None
        known = self._left_out(run, f"{compactions.summary}\n{earlier}")
        return Recall(count, known) if known else None

    def tell(self, follower: LegFollower, recall: Recall) -> None:
        """Tells the session, once for each compaction."""
        number, drive, leg = recall.compaction, follower.drive, follower.leg
        folder = Path(leg.folder)
        words = ""
        if recall.known:
            words = self._prompts.recall(recall.known, moment="cut" if recall.is_cut else "at_work")
            self._digest.tell(words)
        if recall.halt is not None:
            if words:
                write(folder / f"recall-{number}-held.md", words)
            earlier = recall.known if recall.is_part else ""
            if follower.recalls.halts is not None:
                follower.recalls.halts.answer(recall.halt, words, number, earlier=earlier)
            return
        write(folder / f"{_key(number)}.md", words)
        if recall.is_cut:
            follower.cut_for_recall()
            leg.command(f"cut-{number}", "input", input=drive.interrupt)
        if drive.say is not None:
            message = drive.say(words, follower.recalls.key(number))
            leg.command(_key(number), "input", input=message)

    def _get_ready(self, run: Run) -> None:
        """Works out once, before any compaction, what would have to be told: the first time takes
        many times as long, and a session that has compacted acts on its summary at once."""
        if not self._is_ready and run.reading is not None and run.reading.fraction >= _READY_AT:
            self._is_ready = True
            self._prompts.recall(self._left_out(run, ""), moment="at_work")

    def keep(self, run: Run, follower: LegFollower) -> bool:
        """Records whether the session must still be told what its own compaction left out. Returns
        whether it must before what it said last counts: those words came after the compaction."""
        compactions, folder = follower.compactions, Path(follower.leg.folder)
        if not compactions.count:
            return False
        follower.recalls.see_halts()
        known = [
            read_json(earlier / "compacted")
            for number in range(1, follower.number)
            if read((earlier := self._folder_of(number)) / "session") == follower.session_id
        ]
        # Some include the summary when they are restarted.
        summary = redact(compactions.summary)[0]
        is_new = not summary or all((each or {}).get("summary") != summary for each in known)
        owed = is_new and compactions.count > follower.recalls.last_received
        write_json(folder / "compacted", {"owed": owed, "summary": summary})
        if not owed or not run.policy.recall_after_compaction:
            return False
        if compactions.replies_after < compactions.count:
            return False  # it compacted when it had finished
        # Told with its prompt, it had nothing left to do.
        has_nothing_to_do = read(folder / RECALLED) is not None and follower.work.call is None
        return not has_nothing_to_do and self._left_out(run, compactions.summary) != ""

    def forgotten(self, run: Run, decision: StartLeg) -> str:
        """What the resumed session lost in its own compaction and was not told since."""
        is_told = decision.prompt in ("resume", "recall", "check")
        if not run.policy.recall_after_compaction or not is_told:
            return ""
        for number in range(decision.leg - 1, 0, -1) if decision.session_id else ():
            folder = self._folder_of(number)
            if read(folder / "session") != decision.session_id:
                break
            found = read_json(folder / "compacted")
            if isinstance(found, dict) and found.get("owed"):
                return self._left_out(run, str(found.get("summary") or ""))
            if read(folder / "replied"):
                break  # it was already told
        return ""

    def _left_out(self, run: Run, summary: str, max_chars: int | None = None) -> str:
        window = run.reading.window_tokens if run.reading else 0
        digest = self._digest.digest()
        return left_out(digest, summary, window_tokens=window, max_chars=max_chars, task=run.task)


def is_told_at_once(follower: LegFollower) -> bool:
    """Whether it is about to act on nothing but the summary of its own compaction, or has just
    begun to: a tool that was called on that basis alone is interrupted, unless it has been running
    for some time."""
    compactions = follower.compactions
    goes_on = not compactions.ends_turn or compactions.works_after == compactions.count
    is_next = (
        compactions.results_after < compactions.count and compactions.is_after_work and goes_on
    )
    can_wait = not follower.has_open_call or follower.has_new_call
    return follower.drive.works_on_compacted and is_next and can_wait


def _can_be_replaced(run: Run, follower: LegFollower) -> bool:
    """Whether ending it now loses nothing, for an agent that accepts no input: it is resumed with
    the message, or, if its session grows by that and handoffs are on, handed over to a new one."""
    able = run.abilities
    grows = able.resume_factor > 1
    can_resume = able.resumes and run.session_id != "" and not (grows and too_large_to_resume(run))
    is_able = can_resume or (grows and run.policy.hard_mark <= 1)
    is_idle = follower.is_between_tools or is_told_at_once(follower)
    return is_able and run.state is RunState.WORKING and is_idle


def _key(compaction: int) -> str:
    """The key of the command, which is carried out once."""
    return f"recall-{compaction}"
