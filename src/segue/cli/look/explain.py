"""`segue explain`: which signs decided the verdict, which ones lost and why, and what would
change it."""

from typing import Any

import click
import msgspec

from segue import api
from segue.cli.support import inputs
from segue.system.config import config
from segue.views import printing
from segue.views import verdicts as render


@click.command("explain")
@inputs.ending_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--example", metavar="NAME", help="Explain a bundled recording of a real run.")
def command(*, as_json: bool, example: str | None, **options: Any) -> None:
    """Show which signs decided a verdict, and which ones lost and why.

    Takes the same input as `segue classify`.
    """
    given = inputs.example(example) if example else inputs.collect(**options)
    inputs.say(given)
    policy = config.policy()
    judgement = api.examine(given.ending, now=given.now, tz=given.tz, policy=policy)
    counterfactuals = api.counterfactuals(
        given.ending, judgement, now=given.now, tz=given.tz, policy=policy
    )
    if as_json:
        verdict = render.as_dict(judgement.stop)
        verdict["signs"] = [_sign(sign) for sign in judgement.signs]
        verdict["lost"] = [_sign(sign) for sign in judgement.lost]
        verdict["would_change"] = render.changes(judgement, policy, counterfactuals)
        verdict["otherwise"] = [
            {"change": other.change, "reason": other.reason.value} for other in counterfactuals
        ]
        printing.say(render.as_json(verdict))
    else:
        printing.say(
            render.explanation(judgement, policy, counterfactuals, now=given.now, tz=given.tz)
        )


def _sign(sign: Any) -> dict[str, Any]:
    return {
        "reason": sign.reason.value,
        "rank": sign.rank.name.lower(),
        "strength": sign.strength.name.lower(),
        "evidence": msgspec.to_builtins(sign.evidence),
        "lost": sign.lost,
        "words": list(sign.words),
    }
