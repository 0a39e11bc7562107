"""Carries out what is decided about legs. Everything here may be asked for twice, by two processes
of which the first was killed: what was done already is found in the leg's folder."""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from segue import agents
from segue.agents.drive import Drive, Launch, Order
from segue.agents.profile import Profile
from segue.core.checkpoint import Checkpoint
from segue.core.failure import failure_of
from segue.core.progress import Mark, Progress, progressed
from segue.core.run import LegEnded, Run, StartLeg
from segue.errors import StateError
from segue.io import git
from segue.io.leg import Exit, Leg, Spec
from segue.io.notify import Notifier
from segue.runner import handoff, others, spending
from segue.runner.check import Check
from segue.runner.clock import Clock
from segue.runner.folders import RunFolder, read, read_json, write, write_json
from segue.runner.follower import Follower
from segue.runner.prompts import Prompts
from segue.runner.verdict import active_s, source_of, verdict
from segue.runner.warm import Warm
from segue.store.port import Store
from segue.transcripts.windows import Windows

_CLOSE_S = 20.0  # how long an agent may take to end by itself once it was told to
_END_S = 5.0


class Crew:
    """For one run: its agent, its folders, its prompts."""

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
    ) -> None:
        self.drive, self.command, self.prompts, self.store = drive, command, prompts, store
        self.profile = agents.find(drive.agent) or _plain(drive.agent)
        self.env = dict(env)
        self.hold = hold  # takes a lease, or raises Held
        self.folder = RunFolder(run.id, home)
        self.windows = Windows(run.policy, env, _price_window)
        self.notifier = Notifier()
        self.progress = Progress()
        self._is_primed = False
        self._warm = Warm(run.policy)

    # Legs

    def start(self, run: Run, decision: StartLeg, clock: Clock) -> Follower:
        """Starts the leg, or finds the one that was started. Raises SegueError or OSError."""
        folder = self.folder.leg(decision.leg)
        leg = Leg(folder)
        self._prime(decision.leg)
        if leg.status().state in ("not_started", "starting"):
            if decision.session_id:
                self._claim(run, decision.session_id)
            launch = self.launch(run, decision, folder)
            if self.drive.tidy is not None and decision.session_id:
                self.drive.tidy(decision.session_id, self.env, run.cwd)
            if read(folder / "before") is None:
                self._mark(run, folder / "before")
            write(folder / "purpose", decision.purpose)
            write(folder / "session", launch.session_id or decision.session_id)
            self.named(launch.session_id)
            for name, text in launch.files.items():
                write(folder / name, text)
            status = leg.start(self._spec(run, launch), self._environment(run, launch))
            if status.exit is not None and status.exit.error:
                raise StateError(status.exit.error)
        self._warm.begin()  # the agent takes its time to begin
        follower = Follower(
            leg,
            decision.leg,
            drive=self.drive,
            profile=self.profile,
            windows=self.windows,
            run=run,
            session_id=read(folder / "session") or decision.session_id,
            progress=self.progress,
            env=self.env,
            clock=clock,
        )
        name = f"segue:ask:{run.id}:{decision.leg}"
        follower.ask_key = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        for name in ("stdout", "exit.json"):
            self.notifier.watch(folder / name)
        if decision.purpose == "checkpoint":
            follower.asked()
            follower.is_only_asked = True
        elif (asked := read_json(folder / "asked")) is not None:
            follower.asked_line, follower.asked_cut = asked
        return follower

    def _claim(self, run: Run, session_id: str) -> None:
        """One writer per session: also the user counts, who may have gone on by hand. Raises
        SegueError."""
        self.hold(f"session:{self.profile.name}:{session_id}")
        file = self.drive.session_file
        path = file(session_id, self.env, run.cwd) if file is not None else ""
        other = others.working_on(self.profile.name, session_id, path, run.cwd, self.env)
        if other is not None:
            raise StateError(
                f"process {other.pid} has session {session_id} open: end it first, then go on"
            )

    def named(self, session_id: str) -> None:
        """This session is the run's: the daemon and the hooks leave it alone."""
        if session_id:
            self.hold(f"session:{self.profile.name}:{session_id}")

    def launch(self, run: Run, decision: StartLeg, folder: Path) -> Launch:
        """How it is started; what it is told is in the leg's folder, for people."""
        prompt = self.prompts.of(
            run,
            decision,
            checkpoint=self._checkpoint(run),
            doubt=self._doubt(decision),
            checked=self._checked(),
        )
        write(folder / "prompt.md", prompt)
        return self.drive.launch(
            Order(
                command=self.command,
                prompt=prompt,
                session_id=decision.session_id,
                # Whoever does this again comes to the same name.
                new_id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"segue:{run.id}:{decision.leg}")),
                flags=run.flags,
                cwd=run.cwd,
                folder=str(folder),
                env=self.env,
            )
        )

    def ask(self, follower: Follower, *, now: bool) -> None:
        """For a checkpoint. An agent that takes no words is interrupted: it is asked in a leg of
        its own."""
        leg, folder = follower.leg, Path(follower.leg.folder)
        if now and follower.has_open_call and (doubt := follower.call_in_doubt) is not None:
            write(folder / "doubt", doubt)  # it will be interrupted
        if not self.drive.talks or self.drive.say is None:
            self._end(follower, "handoff")
            return
        if read(folder / "asked") is None:
            write_json(folder / "asked", [follower.live.lines, now])
            follower.asked(is_cut=now)
        if now and self.drive.interrupt:
            leg.command("interrupt", "input", input=self.drive.interrupt)
        request = self.drive.say(self.prompts.request(), follower.ask_key)
        leg.command("ask", "input", input=request)

    def close(self, follower: Follower) -> None:
        """No more input: it ends, once its background work is done."""
        if not follower.is_closed:
            follower.is_closed = True
            follower.leg.command("close", "close_input")

    def end(self, follower: Follower, how: str) -> None:
        """close: it was told all, and must do nothing more. gentle, kill: as they say."""
        if how == "kill":
            follower.leg.command("kill", "kill")
        elif how == "close":
            follower.is_closed = True
            self._end(follower, "close", _CLOSE_S)
        else:
            self._end(follower, "gentle")

    def _end(self, follower: Follower, key: str, patience_s: float = _END_S) -> None:
        leg, is_busy = follower.leg, not follower.turn_is_over
        if is_busy and self.drive.interrupt:
            leg.command(f"stop-{key}", "input", input=self.drive.interrupt)
        leg.command("close", "close_input")
        leg.command(
            f"end-{key}",
            "end",
            interrupt=is_busy and not self.drive.interrupt,
            patience_s=patience_s,
        )

    def ended(self, follower: Follower) -> Exit | None:
        """How its process ended; None while it runs."""
        status = follower.leg.status()
        if status.state == "lost":
            return follower.leg.sweep_lost()
        return status.exit

    def files(self, follower: Follower | None) -> list[int]:
        """What tells that there is something to see."""
        file = self.notifier.fileno()
        return [file] if file is not None and follower is not None else []

    def drain(self) -> None:
        """Forgets what was told by `files`: before a look, never after it."""
        self.notifier.drain()

    def keep_told(self, follower: Follower) -> None:
        """The agent's answer, as it gave it."""
        if follower.answer is not None:
            write(Path(follower.leg.folder) / "told.md", follower.answer.text)

    # After a leg

    def judge(self, run: Run, follower: Follower, ended: Exit, now: float) -> LegEnded:
        """Why it ended and what came of it."""
        self._warm.wait()
        folder = Path(follower.leg.folder)
        is_cut = bool(ended.ended_by_command) or ended.lost or (ended.exit_code or 0) < 0
        doubt = follower.call_in_doubt if is_cut or follower.has_open_call else None
        doubt = follower.cut_call if doubt is None else doubt
        if doubt is not None and read(folder / "doubt") is None:
            write(folder / "doubt", doubt)
        write(folder / "replied", "yes" if follower.has_replied else "")
        if follower.last_text:
            write(folder / "answer.md", follower.last_text)
        write(folder / "session", follower.session_id)
        if self.drive.tidy is not None and follower.session_id:
            self.drive.tidy(follower.session_id, self.env, run.cwd)
        stop = verdict(run, follower, ended, now)
        before = msgspec.convert(read_json(folder / "before") or {}, Mark)
        after = self._mark(run, folder / "after")
        tokens, cost = self.spent(follower)
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
        )

    def spent(self, follower: Follower) -> tuple[int, float]:
        """Tokens and dollars of this leg so far."""
        earlier = [self.folder.leg(number) for number in range(1, follower.number)]
        return spending.of_leg(self.profile.name, follower, earlier)

    def compose(self, run: Run, now: float) -> tuple[int, bool]:
        """Writes the checkpoint down; its number, and whether the agent's words are in it."""
        folders = [self.folder.leg(number) for number in range(1, run.leg + 1)]
        checkpoint = handoff.collect(run, folders, self.drive, self.profile, self.env)
        self.store.keep_checkpoint(run.id, run.leg, msgspec.to_builtins(checkpoint), now)
        return run.leg, checkpoint.told is not None

    def check(self, run: Run) -> Check:
        """Starts the user's own check."""
        folder = self.folder.check(run.check_tries + 1, run.leg)
        check = Check(folder, run.policy.tool_stall_s)
        env = {**self.env, "SEGUE_RUN": run.id, "SEGUE_LEG": f"{run.id}/{folder.name}"}
        check.start(run.check, run.cwd, env, run.policy.grace_s)
        write(self.folder.path / "check", folder.name)
        return check

    def answer(self, run: Run) -> str:
        """The last words of the work."""
        for number in range(run.leg, 0, -1):
            if text := read(self.folder.leg(number) / "answer.md"):
                return text
        return ""

    # Inside

    def _spec(self, run: Run, launch: Launch) -> Spec:
        return Spec(
            argv=launch.argv,
            cwd=run.cwd,
            input=launch.input,
            stays_open=launch.stays_open,
            interrupt_signal=self.drive.interrupt_signal,
            grace_s=run.policy.grace_s,
        )

    def _environment(self, run: Run, launch: Launch) -> dict[str, str]:
        marks = {"SEGUE_RUN": run.id, "SEGUE_LEG": f"{run.id}/{run.leg}"}
        return {**self.env, **launch.env, **marks}

    def _checkpoint(self, run: Run) -> Checkpoint | None:
        kept = self.store.checkpoint(run.id, run.checkpoint) if run.checkpoint else None
        return msgspec.convert(kept, Checkpoint) if kept is not None else None

    def _doubt(self, decision: StartLeg) -> str | None:
        """Of the last leg that worked: those that were only asked for a checkpoint did nothing, and
        neither did those that never replied."""
        for number in range(decision.leg - 1, 0, -1):
            folder = self.folder.leg(number)
            doubt = read(folder / "doubt")
            did_nothing = read(folder / "purpose") == "checkpoint" or not read(folder / "replied")
            if doubt is not None or not did_nothing:
                return doubt
        return None

    def _checked(self) -> tuple[int, str]:
        """The exit code of the newest check, and the end of what it printed."""
        name = read(self.folder.path / "check")
        if name is None:
            return 1, ""
        leg = Leg(self.folder.path / name)
        ended = leg.exit()
        source = source_of(leg.stdout, "stdout")
        code = ended.exit_code if ended is not None else None
        return 1 if code is None else code, source.text if source is not None else ""

    def _mark(self, run: Run, path: Path) -> Mark:
        """Where the work stands now, also written down."""
        self.progress.see_tree(git.mark(run.cwd))
        mark = self.progress.mark()
        write_json(path, msgspec.to_builtins(mark))
        return mark

    def _prime(self, before: int) -> None:
        """A new process has to know what earlier legs did."""
        if not self._is_primed:
            self._is_primed = True
            folders = [self.folder.leg(number) for number in range(1, before)]
            handoff.prime(self.progress, folders, self.profile)


def _plain(name: str) -> Profile:
    """An agent whose output is just text: its exit code tells whether it is done."""
    return Profile(
        name=name,
        knows=lambda record: False,
        parse=lambda records: iter(()),
        zero_means_done=True,
    )


def _price_window(model: str) -> int | None:
    from segue.io import prices

    return prices.window_tokens(model)
