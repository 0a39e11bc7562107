"""Mutations of segue's own code, and whether the simulation finds them.

    python tests/support/mutations.py [--only TEXT] [--worlds N]

Each mutation is one small mistake as people make it: a check dropped, an order swapped, `<` for
`<=`. It is made in a copy of the package; worlds are played until an invariant is broken. The
table says which rule found it, and the share of those found is the measure of the invariants.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src"
SEED = 7
WORLDS = 250
"""At most: few mistakes need more than the first ones."""

_PLAY = """
import json, sys
from segue.core.policy import Policy
from segue.testing.simulation.models import Growth
from segue.testing.simulation.world import planned, play
found = {"rule": "", "what": "", "world": -1}
for number in range(int(sys.argv[1])):
    plan = planned(%d, number, sessions=4, days=30.0, policy=Policy(), growth=Growth())
    try:
        result = play(plan)
    except Exception as fault:
        found = {"rule": "internal error", "what": repr(fault)[:200], "world": number}
        break
    if result.rule:
        found = {"rule": result.rule, "what": result.what, "world": number}
        break
print(json.dumps(found))
"""


class Mutation(NamedTuple):
    """One mistake: in this file, this text becomes that one."""

    name: str
    file: str
    before: str
    after: str
    also: tuple[tuple[str, str, str], ...] = ()
    """A second guard, dropped with the first: file, text, what it becomes."""

    @property
    def places(self) -> tuple[tuple[str, str, str], ...]:
        """All that is changed: file, text, what it becomes."""
        return ((self.file, self.before, self.after), *self.also)


_MACHINE = "segue/core/runs/machine"
_TERMINAL = "segue/core/handoffs/machine"
MUTATIONS = (
    Mutation(
        "a run's lease is given although a living process holds it",
        "segue/runs/store/rules.py",
        "if old is not None and not seize and self._is_alive(old):",
        "if False:",
    ),
    Mutation(
        "the epoch of a lease is not checked",
        "segue/runs/store/rules.py",
        "if holder is None or now != epoch:",
        "if holder is None:",
    ),
    Mutation(
        "the log is written after the act",
        "segue/runs/journal.py",
        """        entry = self.store.append(
            step.run,""",
        """        if step.decisions and step.decisions[0].__class__.__name__ == "StartLeg":
            self.run = step.run
            return step.decisions
        entry = self.store.append(
            step.run,""",
    ),
    Mutation(
        "what was decided and not done is forgotten",
        "segue/runs/journal.py",
        "return [each for each in found if getattr(each, \"leg\", self.run.leg) == self.run.leg]",
        "return []",
    ),
    Mutation(
        "the hard mark is exclusive",
        f"{_MACHINE}/moves.py",
        "reading.used_tokens >= hard:",
        "reading.used_tokens > hard:",
    ),
    Mutation(
        "the hard mark is not looked at",
        f"{_MACHINE}/moves.py",
        "if hard is not None and reading.used_tokens >= hard:",
        "if False:",
    ),
    Mutation(
        "no session is ever due",
        f"{_MACHINE}/moves.py",
        "is_due=why != \"\"",
        "is_due=False",
    ),
    Mutation(
        "every session is due",
        "segue/core/runs/due.py",
        "if pace is None or not _passes_later(run, pace, room, found):",
        "if pace is None:",
    ),
    Mutation(
        "a boundary begins no handoff",
        f"{_MACHINE}/handlers.py",
        "if not run.is_due or run.ended_how or (fact.ahead and not run.abilities.talks):",
        "if True:",
    ),
    Mutation(
        "facts of old legs count",
        f"{_MACHINE}/__init__.py",
        "return leg is not None and (leg != run.leg or not run.is_live)",
        "return False",
    ),
    Mutation(
        "a wait may end before the reset",
        "segue/core/runs/waits.py",
        "until = reset.at + policy.reset_jitter_min_s + spread_s * draw",
        "until = reset.at - 60.0 + spread_s * draw",
    ),
    Mutation(
        "a wait is ended by any word",
        f"{_MACHINE}/handlers.py",
        """    if fact.timer != "wait" or wait is None:
        return RunStep(run)
    if context.at < wait.until and not wait.is_relative:
        return RunStep(run)  # never before the reset, whoever asks
""",
        """    if wait is None:
        return RunStep(run)
""",
    ),
    Mutation(
        "a wait of seconds is ten seconds too short",
        "segue/core/runs/waits.py",
        "return max(0.0, total_s - max(0.0, elapsed_s))",
        "return max(0.0, total_s - 10.0 - max(0.0, elapsed_s))",
    ),
    Mutation(
        "waits do not grow",
        "segue/core/runs/waits.py",
        "doubled = policy.unknown_reset_wait_s * 2.0 ** min(max(0, tries - 1), _MAX_DOUBLINGS)",
        "doubled = policy.unknown_reset_wait_s",
    ),
    Mutation(
        "waits grow without end",
        "segue/core/runs/waits.py",
        "return min(doubled, policy.unknown_reset_max_s) * around",
        "return doubled * around",
    ),
    Mutation(
        "a relative wait goes by the clock that is set",
        "segue/core/runs/waits.py",
        "if not wait.is_relative:",
        "if True:",
    ),
    Mutation(
        "overloads are tried for ever",
        f"{_MACHINE}/moves.py",
        "if overloaded and tries > policy.overload_tries:",
        "if overloaded and tries > policy.overload_tries + 50:",
    ),
    Mutation(
        "one overload too many is tried",
        f"{_MACHINE}/moves.py",
        "if overloaded and tries > policy.overload_tries:",
        "if overloaded and tries > policy.overload_tries + 1:",
    ),
    Mutation(
        "a refused account is waited for",
        f"{_MACHINE}/leg_over.py",
        "return relay\n    return fail(run, outcomes.stopped(run, stop))\n",
        "return relay\n    return wait(run, context, stop)\n",
    ),
    Mutation(
        "a task that the model declines is tried again",
        f"{_MACHINE}/leg_over.py",
        "    if reason in _FINAL:\n        return fail(run, outcomes.stopped(run, stop))\n",
        "",
    ),
    Mutation(
        "Ctrl+C ends the leg, and the run goes on",
        f"{_MACHINE}/leg_over.py",
        "    is_users = outcome.exit_code == outcomes.USER_ENDED\n",
        "    if outcome.exit_code == outcomes.USER_ENDED:\n"
        "        return go_on(run, context, 'on')\n"
        "    is_users = False\n",
    ),
    Mutation(
        "the daemon takes up what the user cancelled",
        "segue/core/resumes/takeups.py",
        "if left.cancel_asked or (run.state is RunState.STOPPING and run.outcome_due is not None):",
        "if False:",
    ),
    Mutation(
        "the daemon takes up although auto_resume is off",
        "segue/core/resumes/takeups.py",
        "    if not policy.auto_resume:\n        return Leave(",
        "    if False:\n        return Leave(",
        # It spares reading the run's log, and is a guard of its own.
        also=((
            "segue/watch/resumes/takeups.py",
            "        if not policy.auto_resume:\n            return  #",
            "        if False:\n            return  #",
        ),),
    ),
    Mutation(
        "a session that handed over is resumed",
        f"{_MACHINE}/moves.py",
        "    if run.has_handed_over:\n        return \"its session has handed its work over\"\n",
        "",
    ),
    Mutation(
        "a new session is given the task instead of the checkpoint",
        f"{_MACHINE}/handlers.py",
        "prompt=\"check\" if unheard else \"continuation\"",
        "prompt=\"check\" if unheard else \"task\"",
    ),
    Mutation(
        "the continuation has an old checkpoint",
        f"{_MACHINE}/handlers.py",
        "    run = replace(run, checkpoint=max(run.checkpoint, fact.number))\n",
        "    run = replace(run, checkpoint=run.checkpoint or fact.number)\n",
    ),
    Mutation(
        "a completed leg is resumed",
        f"{_MACHINE}/leg_over.py",
        "    if reason is StopReason.COMPLETED:\n        return _completed(run, context)\n",
        "",
    ),
    Mutation(
        "a failed check counts as passed",
        f"{_MACHINE}/handlers.py",
        "    if fact.ok:\n        return finish",
        "    if fact.ok or fact.exit_code == 1:\n        return finish",
    ),
    Mutation(
        "checks are made for ever",
        f"{_MACHINE}/handlers.py",
        "if run.check_tries >= run.policy.max_checks:",
        "if run.check_tries >= run.policy.max_checks + 3:",
    ),
    Mutation(
        "tokens are not counted",
        f"{_MACHINE}/leg_over.py",
        "tokens=run.tokens + max(0, fact.tokens),",
        "tokens=max(run.tokens, fact.tokens),",
    ),
    Mutation(
        "the limit on tokens does not end a leg",
        "segue/runs/loop.py",
        "if policy.max_tokens is not None and self.run.tokens + tokens >= policy.max_tokens:",
        "if policy.max_tokens is not None and tokens >= 100 * policy.max_tokens:",
    ),
    Mutation(
        "a leg is started although no token is left",
        f"{_MACHINE}/moves.py",
        "if policy.max_tokens is not None and run.tokens >= policy.max_tokens:",
        "if policy.max_tokens is not None and run.tokens >= 100 * policy.max_tokens:",
    ),
    Mutation(
        "legs without progress are not counted",
        f"{_MACHINE}/leg_over.py",
        "idle_legs = 0 if fact.progressed else run.idle_legs + 1",
        "idle_legs = run.idle_legs",
    ),
    Mutation(
        "a silent agent is waited for",
        "segue/core/runs/timers.py",
        "found.append(Deadline(\"stall\", heard_at + patience_s))",
        "found.append(Deadline(\"stall\", heard_at + patience_s + 90_000.0))",
    ),
    Mutation(
        "sizes are kept for ever",
        "segue/core/runs/due.py",
        "sizes=(*sizes, used)[-KEPT_SIZES:]",
        "sizes=(*sizes, used)",
    ),
    Mutation(
        "a step depends on more than its facts",
        f"{_MACHINE}/moves.py",
        "        leg_since=context.at,\n",
        "        leg_since=__import__('time').perf_counter(),\n",
    ),
    Mutation(
        "a checkpoint that cannot be written ends segue",
        "segue/runs/loop.py",
        "        except (SegueError, OSError, ValueError) as fault:\n",
        "        except ZeroDivisionError as fault:\n",
    ),
    Mutation(
        "a run does not ask whether its account is limited",
        "segue/runs/loop.py",
        "if not self.executor.is_begun(decision.leg) and self._is_limited(decision):",
        "if False:",
    ),
    Mutation(
        "a limit is not told to the other runs of its account",
        "segue/runs/staff.py",
        "self.accounts.note_limit(self.account(run), limit)",
        "None",
    ),
    Mutation(
        "all go at once after a reset",
        "segue/core/accounts.py",
        "if first is None or first.who == who:",
        "if True:",
    ),
    Mutation(
        "who waits for the first reply waits for ever",
        "segue/core/accounts.py",
        "Answer(first.at + REPLY_S, by=first.who, follows=True)",
        "Answer(first.at + 10 * REPLY_S, by=first.who, follows=True)",
    ),
    Mutation(
        "the daemon does not ask the account before it resumes",
        "segue/watch/resumes/gate.py",
        "return self.accounts.ask(account, tracked.session.session_id, now)",
        "return Answer()",
    ),
    Mutation(
        "the daemon tells nobody of a limit",
        "segue/watch/resumes/gate.py",
        "self.accounts.note_limit(account, limit)",
        "None",
    ),
    Mutation(
        "segue says that its own document is written, and it is not",
        "segue/watch/handoffs/worker.py",
        "self.state.documents.write(self._folder(cycle), path.name, text)\n        except",
        "pass\n        except",
    ),
    Mutation(
        "what is seen of a bad document is forgotten",
        f"{_TERMINAL}/handlers.py",
        "    ok = fact.ok and fact.stable\n",
        "    ok = True\n",
    ),
    Mutation(
        "a session waits for a day after its reset",
        "segue/core/resumes/decisions.py",
        "return WaitForReset(wait.until, why) if now < wait.until else None",
        "return WaitForReset(wait.until + 86_400, why) if now < wait.until else None",
    ),
    Mutation(
        "sessions are resumed although auto_resume is off",
        "segue/core/resumes/decisions.py",
        "if stop is None or not policy.auto_resume:",
        "if stop is None:",
    ),
    Mutation(
        "what the transcript shows is typed again",
        "segue/watch/handoffs/worker.py",
        "elif (what == \"request\" and cycle.id in self._by_hook) or self._landed(cycle, what):",
        "elif False:",
    ),
    Mutation(
        "the document is not read again before the context is cleared",
        "segue/watch/handoffs/worker.py",
        "if why := self._finish_document(cycle):",
        "if why := \"\":",
    ),
    Mutation(
        "a new daemon forgets the handoffs of the last one",
        "segue/watch/handoffs/worker.py",
        "self.cycles[cycle.id] = cycle\n                    self._await(cycle)\n",
        "continue\n",
    ),
    Mutation(
        "a session that its user ended is resumed",
        "segue/core/resumes/decisions.py",
        "if ended_by_user(ending) and not policy.resume_user_exits:",
        "if False:",
    ),
    Mutation(
        "sessions are resumed without end",
        "segue/core/resumes/decisions.py",
        "    if history.resumes >= policy.max_resumes:\n        return AskUser(f\"resumed",
        "    if history.resumes >= policy.max_resumes + 9:\n        return AskUser(f\"resumed",
    ),
    Mutation(
        "sessions hand over although auto_handoff is off",
        "segue/watch/observe/gauge.py",
        "self.state.policy(session).auto_handoff\n            and session.state",
        "session.state",
    ),
    Mutation(
        "the user's Ctrl+C does not end a handoff",
        f"{_TERMINAL}/handlers.py",
        "it is waiting for the user\")\n    return _decline(cycle, context)\n",
        "it is waiting for the user\")\n    return cycle, []\n",
    ),
    Mutation(
        "a session that was cleared is looked for without end",
        "segue/watch/resumes/presence.py",
        "    if _has_moved_on(state, tracked):\n",
        "    if False:\n",
    ),
    Mutation(
        "the same news begins a wait anew",
        f"{_TERMINAL}/handlers.py",
        "if not is_read or cycle.is_read:",
        "if not is_read:",
    ),
    Mutation(
        "the daemon takes up the runs of tasks",
        "segue/watch/resumes/takeups.py",
        "if run.id not in queued]",
        "]",
    ),
    Mutation(
        "a task starts before the one that it comes after is done",
        "segue/core/queue/schedule.py",
        "            if before.state is TaskState.DONE:\n",
        "            if before is not None:\n",
    ),
    Mutation(
        "a task that lost its process is not started again",
        "segue/queue/worker.py",
        "            lost.add(task.id)\n",
        "            pass\n",
    ),
    Mutation(
        "the run of a task is driven again after its end",
        "segue/queue/carrier.py",
        "if found is not None and found.state.is_final and not self.task.again:",
        "if False:",
    ),
    Mutation(
        "a task is over although its process still works",
        "segue/queue/rules.py",
        "    if is_held:\n        return replace(task, cancel_asked=True)\n",
        "",
    ),
)  # fmt: skip


_TOKEN = re.compile(r'\w+|"[^"\n]*"|\S')


def mutated(whole: str, before: str, after: str) -> str | None:
    """The file with the mistake in it; None if its text is not there. However the lines are wrapped
    and wherever the last comma of a call stands, it is the same text."""
    found = re.search(_anyhow(before), whole)
    if found is None:
        return None
    return whole[: found.start()] + after + whole[found.end() :]


def _anyhow(text: str) -> str:
    """A pattern for these tokens with any blanks between them."""
    begin = text[: len(text) - len(text.lstrip())]
    end = text[len(text.rstrip()) :]
    pattern, before = re.escape(begin), ""
    for token in _TOKEN.findall(text):
        if before:
            both = before[-1].isalnum() and token[0].isalnum()
            pattern += r"\s+" if both else r"(?:,?\s*)" if token in ")]}" else r"\s*"
        pattern += re.escape(token)
        before = token
    return pattern + re.escape(end)


def found_by(package: Path, mutation: Mutation, worlds: int) -> dict[str, object]:
    """Which rule finds it; "" if none does."""
    wholes: dict[Path, str] = {}
    try:
        for name, before, after in mutation.places:
            file = package / name
            wholes[file] = file.read_text()
            spoilt = mutated(wholes[file], before, after)
            if spoilt is None:
                return {"rule": "", "what": f"its text is not in {name}", "world": -1}
            file.write_text(spoilt)
        play = subprocess.run(
            [sys.executable, "-c", _PLAY % SEED, str(worlds)],
            env={**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=3_600,
        )
    except subprocess.TimeoutExpired:
        return {"rule": "it does not end", "what": "", "world": -1}
    finally:
        for file, whole in wholes.items():
            file.write_text(whole)
    if play.returncode:
        return {"rule": "internal error", "what": play.stderr[-200:], "world": -1}
    found: dict[str, object] = json.loads(play.stdout)
    return found


def main() -> int:
    """Prints the table; 0 if at least 95% are found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [each for each in MUTATIONS if options.only in each.name][options.skip :]
    if options.list:
        print(*(each.name for each in chosen), sep="\n")
        return 0
    caught = 0
    with tempfile.TemporaryDirectory(prefix="segue-mutations-") as folder:
        package = Path(folder) / "src"
        shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
        for mutation in chosen:
            found = found_by(package, mutation, options.worlds)
            caught += found["rule"] != ""
            rule = found["rule"] or f"NOT FOUND {found['what']}"
            print(f"{mutation.name:58} {rule} (world {found['world']})", flush=True)
    share = caught / len(chosen) if chosen else 0.0
    print(f"{caught} of {len(chosen)} found: {share:.0%}")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    raise SystemExit(main())
