"""Reports a run to a collector while it runs. It is off unless the user set it up, and delays
nothing.

A file in the run's folder records how much of the log the collector has accepted, so a process
that continues after a crash sends the rest, with the same ids.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from segue.agents import drives
from segue.core.runs.types import AnyFact, LegStarted, Run, RunStep
from segue.core.sessions.spend import Spend
from segue.errors import SegueError
from segue.runs.folders import RunFolder, read, write
from segue.runs.journal import Journal
from segue.runs.legs.trackers.spending import spend_by_model
from segue.runs.store.port import Entry
from segue.runs.telemetry.spans import RunSpans
from segue.system.telemetry import setup
from segue.system.telemetry.sender import Batch, Sender
from segue.system.telemetry.types import Measured, Sample, SpanRecord

_PATIENCE_S = 1.0
_MARK_FILE = "telemetry"
MISSING = "[otel] is set up, but OpenTelemetry is not installed: install segue[otel]"


def attach(
    journal: Journal,
    env: Mapping[str, str],
    say: Callable[[str], None],
    numbers: Callable[[], list[Sample]] | None = None,
) -> "RunTelemetry | None":
    """Reports the run of this journal, from its first entry; None if telemetry is off.
    `numbers`: what is also sent at its end."""
    try:
        endpoint = setup.endpoint(env)
    except SegueError as fault:
        say(str(fault))
        return None
    if endpoint is None:
        return None
    if not setup.is_installed():
        if endpoint.is_asked:
            say(MISSING)
        return None
    telemetry = RunTelemetry(journal.run, env, Sender(endpoint), numbers)
    telemetry.catch_up(journal.store.log(journal.run.id))
    journal.listeners.append(telemetry.hear)
    return telemetry


class RunTelemetry:
    """The telemetry of one run, for `Journal.heard`."""

    def __init__(
        self,
        run: Run,
        env: Mapping[str, str],
        sender: Sender,
        numbers: Callable[[], list[Sample]] | None = None,
    ) -> None:
        self._run, self._env, self._sender, self._numbers = run, env, sender, numbers
        self._spans = RunSpans(run.id)
        self._mark = RunFolder(run.id).path / _MARK_FILE
        self._known: dict[str, Spend] = {}  # by session: what its earlier legs spent

    def catch_up(self, entries: list[Entry]) -> None:
        """Sends earlier entries that were not sent yet."""
        mark = read(self._mark) or ""
        done = int(mark) if mark.isdigit() else 0
        for entry in entries:
            self._tell([span for span in self._spans.add(entry) if span.seq > done], entry.seq)

    def hear(self, before: Run, fact: AnyFact, step: RunStep, entry: Entry) -> None:
        """Takes in an entry, once it is logged."""
        self._run = step.run
        if isinstance(fact, LegStarted):
            self._sender.prepare()
        self._tell(self._spans.add(entry), entry.seq)
        if step.run.state.is_final and not before.state.is_final and self._numbers is not None:
            numbers = self._numbers
            self._sender.tell(lambda: Batch(samples=numbers()))

    def close(self) -> None:
        """Waits briefly for data that is being sent, if the collector responds at all."""
        self._sender.close(_PATIENCE_S)

    def _tell(self, spans: list[SpanRecord], seq: int) -> None:
        if spans:
            run = self._run
            self._sender.tell(lambda: self._batch(spans, seq, run))

    # In the sender's thread

    def _batch(self, spans: list[SpanRecord], seq: int, run: Run) -> Batch:
        measured: list[Measured] = []
        made = []
        for span in spans:
            usage = self._usage(span, run)
            if span.attributes.get("gen_ai.operation.name") == "invoke_agent":
                measured += _of_leg(span, usage)
                span = _with_usage(span, usage)
            elif not span.parent:
                measured.append(_duration("gen_ai.workflow.duration", span, "gen_ai.workflow.name"))
            made.append(span)
        return Batch(spans=made, measured=measured, was_sent=lambda: write(self._mark, str(seq)))

    def _usage(self, span: SpanRecord, run: Run) -> dict[str, Spend]:
        """What a leg spent by model, if its session's file says so, less what was spent before."""
        agent = str(span.attributes.get("gen_ai.agent.name", ""))
        session = str(span.attributes.get("gen_ai.conversation.id", ""))
        drive = drives.find(agent)
        if drive is None or drive.session_file is None or not session:
            return {}
        path = drive.session_file(session, self._env, run.cwd)
        total = spend_by_model(drive.agent, path, session) if path else {}
        is_resumed = span.attributes.get("segue.leg.prompt") not in ("task", "continuation")
        is_known = any(key.startswith(f"{session}\n") for key in self._known)
        found = {}
        for model, spend in total.items():
            key = f"{session}\n{model}"
            found[model] = spend - self._known.get(key, Spend())
            self._known[key] = spend
        return {} if is_resumed and not is_known else found


def _with_usage(span: SpanRecord, usage: dict[str, Spend]) -> SpanRecord:
    if not usage:
        return span
    model = max(usage, key=lambda each: usage[each].total_tokens)
    more = {
        "gen_ai.request.model": model,
        "gen_ai.provider.name": _provider(model),
        "gen_ai.usage.input_tokens": sum(_input(each) for each in usage.values()),
        "gen_ai.usage.output_tokens": sum(each.output_tokens for each in usage.values()),
        "gen_ai.usage.cache_read.input_tokens": sum(
            each.cache_read_tokens for each in usage.values()
        ),
        "gen_ai.usage.cache_creation.input_tokens": sum(
            each.cache_write_tokens for each in usage.values()
        ),
    }
    return replace(span, attributes={**span.attributes, **more})


def _of_leg(span: SpanRecord, usage: dict[str, Spend]) -> list[Measured]:
    found = [_duration("gen_ai.invoke_agent.duration", span, "gen_ai.agent.name", "error.type")]
    for model, spend in usage.items():
        for kind, tokens in (("input", _input(spend)), ("output", spend.output_tokens)):
            attributes = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": span.attributes["gen_ai.agent.name"],
                "gen_ai.provider.name": _provider(model),
                "gen_ai.request.model": model,
                "gen_ai.token.type": kind,
            }
            found.append(
                Measured(
                    name="gen_ai.client.token.usage",
                    value=float(tokens),
                    unit="{token}",
                    description="Tokens that a leg used.",
                    attributes=attributes,
                )
            )
    return found


def _duration(name: str, span: SpanRecord, *keys: str) -> Measured:
    shown = {key: span.attributes[key] for key in keys if key in span.attributes}
    return Measured(
        name=name,
        value=max(0.0, span.until - span.since),
        unit="s",
        description="How long it took.",
        attributes=shown,
    )


def _input(spend: Spend) -> int:
    """All input of the model, cached or not, as the conventions count it."""
    return spend.input_tokens + spend.cache_read_tokens + spend.cache_write_tokens


def _provider(model: str) -> str:
    """The provider as the conventions call it; `_OTHER` if the model is on no list."""
    from segue.system.config import prices

    return prices.provider(model) or "_OTHER"
