"""Carries out decisions about legs. Anything here may be requested twice, by two processes of which
the first was killed; the leg's folder shows what was already done.

All in one file: what two processes may do in turn is easier to compare in one place.
"""

import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from segue.agents.contracts.drive import Drive, Launch, LegOrder
from segue.agents.shared import halts
from segue.core.handoffs.checkpoint import Checkpoint, clean
from segue.core.handoffs.digest import Arrival, Builder
from segue.core.handoffs.prompts import Relay, ends_of
from segue.core.runs.failure import failure_of
from segue.core.runs.idle import Idle
from segue.core.runs.progress import Mark, Progress, progressed
from segue.core.runs.types import LegEnded, Origin, Run, StartLeg
from segue.core.secrets.redact import redact
from segue.core.sessions.forecasts.pending import Pending
from segue.core.stops.reasons import StopReason
from segue.errors import StateError
from segue.runs import conflicts
from segue.runs.briefing import handoff, instructions
from segue.runs.briefing.prompts import Prompts
from segue.runs.clock import Clock
from segue.runs.folders import RunFolder, read, read_json, write, write_json
from segue.runs.legs.check import CheckCommand
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.leg import Exit, Leash, Leg, Spec
from segue.runs.legs.snapshots import RunSnapshots
from segue.runs.legs.trackers import spending
from segue.runs.legs.verdict import active_s, source_of, verdict
from segue.runs.recalling import RECALLED, Recall, Recaller
from segue.runs.staff import Hand, Staff
from segue.runs.store.port import Store
from segue.sessions.salvage import Salvager
from segue.sessions.windows import Windows
from segue.system.accounts import Accounts
from segue.system.files.changes import Notifier
from segue.system.git import git

_CLOSE_S = 20.0  # how long an agent may take to end by itself once it was asked to
_END_S = 5.0


class Executor:
    """Carries out decisions for one run: its agents, its folders, its prompts."""

    def __init__(
        self,
        run: Run,
        *,
        drive: Drive,
        command: tuple[str, ...],
        prompts: Prompts,
        store: Store,
        env: Mapping[str, str],
        hold: Callable[[str], None] = lambda key: None,
        home: str | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.prompts, self.store, self.env = prompts, store, dict(env)
        self.staff = Staff(run, drive, command, self.env, home, accounts)
        self.hold = hold  # takes a lease, or raises Held
        self.leash: Leash | None = None  # for the processes that are started next
        self.folder = RunFolder(run.id, home)
        self.windows = Windows(env)
        self.notifier = Notifier()
        self.progress = Progress()
        self.digest = Builder([run.task])
        """The digest of everything that the run's sessions said and saw, in order."""
        self.idle = Idle(run.policy)
        self.say: Callable[[str], None] = lambda line: None
        """Messages for the user that are not facts."""
        self.snapshots = RunSnapshots(run, self.folder.path, lambda line: self.say(line))
        self._origin, self._created_at = run.origin, run.created_at
        self._is_primed = False
        self._recaller = Recaller(prompts, self.digest, self.folder.leg)
        self._printed: dict[Path, Salvager] = {}  # the output of each leg, by its folder
        self._pending: dict[str, Pending] = {}  # of the last leg of each agent
        self._answers: dict[int, str] = {}  # as the agent gave them; the files are redacted

    # Legs

    def start(self, run: Run, decision: StartLeg, clock: Clock) -> LegFollower:
        """Starts the leg, or finds the one that was already started. Raises SegueError or
        OSError."""
        folder = self.folder.leg(decision.leg)
        leg, hand = Leg(folder), self.staff.hand(decision.agent or run.agent)
        drive = hand.drive
        self._prime(run, decision.leg)
        if leg.status().state in ("not_started", "starting"):
            if decision.session_id:
                self._claim(run, hand, decision.session_id)
            launch = self.launch(run, decision, folder, hand)
            write(folder / "agent", hand.agent)
            if drive.tidy is not None and decision.session_id:
                drive.tidy(decision.session_id, self.env, run.cwd)
            if read(folder / "before") is None:
                self.snapshots.before(decision.leg, clock.now(), clock.awake())
                self._mark(run, folder / "before")
            write(folder / "purpose", decision.purpose)
            write(folder / "session", launch.session_id or decision.session_id)
            had_bytes = self._session_bytes(run, drive, decision.session_id)
            write(folder / "session_bytes", str(had_bytes))
            self.named(hand, launch.session_id)
            if decision.session_id and run.origin is not None and decision.leg == 1:
                self._keep_inherited(run.origin, folder)
            for name, text in launch.files.items():
                write(folder / name, text)
            status = leg.start(self._spec(run, drive, launch), self._environment(run, launch))
            if status.exit is not None and status.exit.error:
                raise StateError(status.exit.error)
        follower = LegFollower(
            leg,
            decision.leg,
            drive=drive,
            profile=hand.profile,
            windows=self.windows,
            run=run,
            session_id=read(folder / "session") or decision.session_id,
            progress=self.progress,
            digest=self.digest,
            env=self.env,
            clock=clock,
            file_from=int(read(folder / "session_bytes") or 0),
            idle=self.idle,
            ask_key=str(uuid.uuid5(uuid.NAMESPACE_URL, f"segue:ask:{run.id}:{decision.leg}")),
            is_only_asked=decision.purpose == "checkpoint",
            request_bytes=len(self.prompts.request(run)),
            earlier=self._pending.get(hand.agent),
            has_worked=decision.session_id != "" and read(folder / RECALLED) is None,
        )
        self._pending[hand.agent] = follower.pending
        self._printed[folder] = follower.stream.salvager
        if decision.purpose == "work" and decision.prompt != "task" and not decision.session_id:
            follower.arrival = Arrival(self.digest.digest())
        self.snapshots.session_path = lambda: follower.file.path
        for name in ("stdout", "exit.json", halts.asked(1)):
            self.notifier.watch(folder / name)
        if decision.purpose != "checkpoint" and (asked := read_json(folder / "asked")) is not None:
            line, is_cut = asked
            follower.asking.asked_before(line, is_cut=is_cut)
        return follower

    def is_begun(self, number: int) -> bool:
        """Whether this leg's process was started, by this process or another."""
        return Leg(self.folder.leg(number)).status().state != "not_started"

    def _keep_inherited(self, origin: Origin, folder: Path) -> None:
        """Records what the session cost before the run continued it."""
        total = spending.spend_by_model(origin.agent, origin.path, origin.session_id)
        tokens = spending.tokens_of(total)
        known = [tokens, spending.cost_of(total) if tokens else 0.0]
        write_json(folder / spending.INHERITED, known)

    def _session_bytes(self, run: Run, drive: Drive, session_id: str) -> int:
        """The size of its file; 0 if there is none yet."""
        file = drive.session_file
        path = file(session_id, self.env, run.cwd) if file is not None and session_id else ""
        try:
            return os.stat(path).st_size if path else 0
        except OSError:
            return 0

    def _claim(self, run: Run, hand: Hand, session_id: str) -> None:
        """Ensures that the session has one writer, including the user, who may have continued it
        themselves. Raises SegueError."""
        self.named(hand, session_id)
        file, name = hand.drive.session_file, hand.profile.name
        path = file(session_id, self.env, run.cwd) if file is not None else ""
        other = conflicts.working_on(name, session_id, path, run.cwd, self.env)
        if other is not None:
            raise StateError(
                f"process {other.pid} has session {session_id} open: quit it there first,"
                f" then: segue resume {run.id}"
            )

    def named(self, hand: Hand, session_id: str) -> None:
        """Records that this session belongs to the run, so that the daemon and the hooks leave it
        alone."""
        if session_id:
            self.hold(f"session:{hand.profile.name}:{session_id}")

    def launch(self, run: Run, decision: StartLeg, folder: Path, hand: Hand) -> Launch:
        """The command that starts the leg. Its prompt is also stored in the leg's folder, for
        people."""
        forgotten = self._recaller.forgotten(run, decision)
        doubt, printed = self._doubt(run, decision)
        prompt = self.prompts.of(
            run,
            decision,
            checkpoint=self._checkpoint(run),
            doubt=doubt,
            printed=printed,
            checked=self._checked(),
            forgotten=forgotten,
            relay=self._relay(run, decision, hand),
        )
        if forgotten:
            write(folder / RECALLED, "yes")
        write(folder / "prompt.md", prompt)
        self.digest.tell(prompt)
        if run.unanswered_additions:
            write_json(folder / handoff.USER_WORDS_FILE, run.unanswered_additions)
            handoff.add_user_words(self.digest, run.unanswered_additions)
        return hand.drive.launch(
            LegOrder(
                command=hand.command,
                prompt=prompt,
                session_id=decision.session_id,
                # Repeating this leads to the same name.
                new_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"segue:{run.id}:{decision.leg}")),
                flags=run.flags,
                cwd=run.cwd,
                folder=str(folder),
                env=self.env,
                halts=run.policy.recall_after_compaction,
            )
        )

    def ask(
        self, run: Run, follower: LegFollower, *, now: bool, why: StopReason | None = None
    ) -> None:
        """Asks for a checkpoint. An agent that accepts no input is interrupted, and asked in a
        separate leg."""
        leg, folder = follower.leg, Path(follower.leg.folder)
        if now and follower.has_open_call and (doubt := follower.work.call_in_doubt) is not None:
            write(folder / "doubt", redact(doubt)[0])  # it will be interrupted
        drive = follower.drive
        if not drive.talks or drive.say is None:
            self._end(follower, "handoff")
            return
        if read(folder / "asked") is None:
            write_json(folder / "asked", [follower.live.lines, now])
            follower.begin_answer(is_cut=now)
        if now and drive.interrupt:
            leg.command("interrupt", "input", input=drive.interrupt)
        request = drive.say(self.prompts.request(run, why), follower.asking.key)
        leg.command("ask", "input", input=request)

    def recall(self, run: Run, follower: LegFollower, *, is_free: bool) -> Recall | None:
        """What this leg's session must be told now, because its own compaction left it out; None if
        nothing. `is_free`: the session can take a message."""
        return self._recaller.due(run, follower, is_free=is_free)

    def say_recalled(self, follower: LegFollower, recall: Recall) -> None:
        """Sends that message to the session."""
        self._recaller.tell(follower, recall)

    def close(self, follower: LegFollower) -> None:
        """Closes the input: the agent ends once its background work is done."""
        if not follower.is_closed:
            follower.is_closed = True
            follower.leg.command("close", "close_input")

    def end(self, follower: LegFollower, how: str) -> None:
        """Ends the leg. close: by closing its input, once it has done everything and must do
        nothing more. gentle: in the way the agent prefers. kill: at once."""
        follower.is_ending = True
        if how == "kill":
            follower.leg.command("kill", "kill")
        elif how == "close":
            follower.is_closed = True
            self._end(follower, "close", _CLOSE_S)
        else:
            self._end(follower, "gentle")

    def _end(self, follower: LegFollower, key: str, patience_s: float = _END_S) -> None:
        leg, is_busy = follower.leg, not follower.turn_is_over
        interrupt = follower.drive.interrupt
        if is_busy and interrupt:
            leg.command(f"stop-{key}", "input", input=interrupt)
        leg.command("close", "close_input")
        leg.command(
            f"end-{key}",
            "end",
            interrupt=is_busy and not interrupt,
            patience_s=patience_s,
        )

    def end_by_force(self, number: int, *, is_hard: bool) -> int | None:
        """Makes the keeper of this leg end or kill it, without looking at anything else; returns
        the agent's pid, None if it is not running."""
        folder = self.folder.leg(number)
        leg = Leg(folder)
        status = leg.status()
        if status.state not in ("starting", "running"):
            return None
        if is_hard:
            leg.command("kill", "kill")
        else:
            interrupt = not self.staff.of_leg(folder).drive.interrupt
            leg.command("end-gentle", "end", interrupt=interrupt, patience_s=_END_S)
        return status.agent_pid

    def ended(self, follower: LegFollower) -> Exit | None:
        """How its process ended; None while it is running."""
        status = follower.leg.status()
        if status.state == "lost":
            return follower.leg.sweep_lost()
        if status.exit is None and follower.is_ending:
            follower.leg.rouse()  # it may have been stopped (SIGSTOP) since it was told
        return status.exit

    def files(self, follower: LegFollower | None) -> list[int]:
        """Descriptors that become readable when there is something to see."""
        file = self.notifier.fileno()
        return [file] if file is not None and follower is not None else []

    def drain(self) -> None:
        """Clears what `files` signalled: before a look, never after it."""
        self.notifier.drain()

    def store_answer(self, follower: LegFollower) -> None:
        """Stores the agent's answer, without secrets."""
        if follower.answer is not None:
            write(Path(follower.leg.folder) / "told.md", redact(follower.answer.text)[0])

    # After a leg

    def judge(self, run: Run, follower: LegFollower, ended: Exit, now: float) -> LegEnded:
        """Why the leg ended, and its results."""
        folder = Path(follower.leg.folder)
        is_cut = bool(ended.ended_by_command) or ended.lost or (ended.exit_code or 0) < 0
        doubt = follower.work.call_in_doubt if is_cut or follower.has_open_call else None
        doubt = follower.asking.cut_call if doubt is None else doubt
        doubt = follower.cut_call.command if doubt is None and is_cut else doubt
        if doubt is not None and read(folder / "doubt") is None:
            write(folder / "doubt", redact(doubt)[0])
            if doubt == follower.work.call_in_doubt and follower.last_output.text:
                printed = ends_of(follower.last_output.text)
                write(folder / "doubt_printed", redact(printed)[0])
        write(folder / "replied", "yes" if follower.has_replied else "")
        if (words := follower.work.text) != "":
            self._answers[follower.number] = words
            write(folder / "answer.md", redact(words)[0])
        write(folder / "session", follower.session_id)
        is_untold = self._recaller.keep(run, follower)
        if (tidy := follower.drive.tidy) is not None and follower.session_id:
            tidy(follower.session_id, self.env, run.cwd)
        before = msgspec.convert(read_json(folder / "before") or {}, Mark)
        self.snapshots.after(follower.number, now)
        after = self._mark(run, folder / "after")
        is_unchanged = after.tree != "" and after.tree == before.tree
        stop = verdict(run, follower, ended, now, is_unchanged=is_unchanged)
        tokens, cost = self.leg_spend(follower)
        write_json(folder / "spent", [tokens, cost])
        return LegEnded(
            leg=follower.number,
            stop=stop,
            replied=follower.has_replied,
            progressed=bool(progressed(before, after)),
            failure=failure_of(stop),
            tokens=tokens,
            cost_usd=cost,
            active_s=active_s(run, follower, ended),
            limits=self.staff.limits(run, now),
            is_untold=is_untold,
        )

    def leg_spend(self, follower: LegFollower) -> tuple[int, float]:
        """The leg's tokens and dollars so far."""
        earlier = [self.folder.leg(number) for number in range(1, follower.number)]
        return spending.of_leg(follower.profile.name, follower, earlier)

    def compose(self, run: Run, now: float) -> tuple[int, bool]:
        """Writes the checkpoint; returns its number, and whether the agent's own words are in
        it."""
        folders = [self.folder.leg(number) for number in range(1, run.leg + 1)]
        self._prime(run, run.leg + 1)
        digest = self.digest.digest()
        found = handoff.collect(run, folders, self.staff.of_leg, self._printed, self.env, digest)
        checkpoint = clean(found)[0]
        number = max(1, run.leg)  # a rescue writes its first one before its first leg
        self.store.keep_checkpoint(run.id, number, msgspec.to_builtins(checkpoint), now)
        return number, checkpoint.summary is not None

    def check(self, run: Run, clock: Clock) -> CheckCommand:
        """Starts the user's own check."""
        folder = self.folder.check(run.check_tries + 1, run.leg)
        check = CheckCommand(folder, run.policy.tool_stall_s, clock.awake)
        env = {**self.env, "SEGUE_RUN": run.id, "SEGUE_LEG": f"{run.id}/{folder.name}"}
        check.start(run.check, run.cwd, env, run.policy.grace_s, self.leash)
        write(self.folder.path / "check", check.folder.name)
        return check

    def answer(self, run: Run) -> str:
        """The last words of the work: the agent's own, if this process saw them."""
        last = max((number for number in self._answers if number <= run.leg), default=0)
        text = self.folder.answer(run.leg)
        own = self._answers.get(last, "")
        return own if redact(own)[0] == text else text

    # Inside

    def _spec(self, run: Run, drive: Drive, launch: Launch) -> Spec:
        return Spec(
            argv=launch.argv,
            cwd=run.cwd,
            input=launch.input,
            stays_open=launch.stays_open,
            interrupt_signal=drive.interrupt_signal,
            grace_s=run.policy.grace_s,
            max_output_bytes=run.policy.max_output_bytes,
            leash=self.leash,
        )

    def _environment(self, run: Run, launch: Launch) -> dict[str, str]:
        marks = {"SEGUE_RUN": run.id, "SEGUE_LEG": f"{run.id}/{run.leg}"}
        return {**self.env, **launch.env, **marks}

    def _checkpoint(self, run: Run) -> Checkpoint | None:
        stored = self.store.checkpoint(run.id, run.checkpoint) if run.checkpoint else None
        return msgspec.convert(stored, Checkpoint) if stored is not None else None

    def _doubt(self, run: Run, decision: StartLeg) -> tuple[str | None, str]:
        """The call in doubt of the last leg that worked, and what it was seen to print. Legs that
        were only asked for a checkpoint do not count, nor do legs that never replied. If no leg
        counts, it is that of the rescued session."""
        for number in range(decision.leg - 1, 0, -1):
            folder = self.folder.leg(number)
            doubt = read(folder / "doubt")
            did_nothing = read(folder / "purpose") == "checkpoint" or not read(folder / "replied")
            if doubt is not None or not did_nothing:
                return doubt, read(folder / "doubt_printed") or ""
        return (run.origin.doubt if run.origin is not None else None), ""

    def _relay(self, run: Run, decision: StartLeg, hand: Hand) -> Relay | None:
        """What a session has to know if another agent had the last leg."""
        before = run.origin.agent if run.origin is not None else ""
        for number in range(decision.leg - 1, 0, -1):
            folder = self.folder.leg(number)
            if read(folder / "replied"):
                before = self.staff.of_leg(folder).agent
                break
        if not before or before == hand.agent or decision.session_id:
            return None
        unread = instructions.unread_after(run.cwd, hand.drive, before)
        return Relay(before=before, agent=hand.agent, unread=unread)

    def _checked(self) -> tuple[int, str]:
        """The exit code of the newest check, and the end of its output."""
        name = read(self.folder.path / "check")
        if name is None:
            return 1, ""
        leg = Leg(self.folder.path / name)
        ended = leg.exit()
        source = source_of(leg.stdout, "stdout")
        code = ended.exit_code if ended is not None else None
        return 1 if code is None else code, source.text if source is not None else ""

    def _mark(self, run: Run, path: Path) -> Mark:
        """The current state of the work, which is also stored."""
        self.progress.see_tree(git.mark(run.cwd))
        mark = self.progress.mark()
        write_json(path, msgspec.to_builtins(mark))
        return mark

    def _prime(self, run: Run, before: int) -> None:
        """Brings this process up to date with what earlier legs did."""
        if not self._is_primed:
            self._is_primed = True
            if self._origin is not None:
                handoff.prime_origin(self.progress, self.digest, self._origin, self._created_at)
            folders = [self.folder.leg(number) for number in range(1, before)]
            progress, hand_of = self.progress, self.staff.of_leg
            self._printed |= handoff.prime(progress, self.digest, folders, hand_of, run.cwd)
