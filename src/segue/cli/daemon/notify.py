"""`segue notify test`: does a notice reach you?"""

import os
import sys

import click

from segue.system.config import settings
from segue.system.notices import Services, make_notice, make_ways
from segue.views import printing

FAILED = 1


@click.group()
def command() -> None:
    """Notices about stops, waits, resumes and handoffs, and when segue needs you."""


@command.command()
@click.pass_context
def test(ctx: click.Context) -> None:
    """Send one notice through every channel, and report the result."""
    policy = settings.load(os.getcwd(), os.environ).policy()
    notice = make_notice(
        "needs_you",
        "segue: test notification",
        "This is what a notification from segue looks like.",
        f"Sent from {os.getcwd()}.",
        terse=policy.notify_terse,
    )
    went_out = failed = 0
    for where, why in Services(policy.notify).each(notice):
        printing.say(f"{where} {why or 'accepted it'}", err=bool(why))
        went_out, failed = went_out + (not why), failed + bool(why)
    if not policy.notify:
        printing.say('no service is configured; add notify = ["…"] under [policy] in config.toml')
    for way in make_ways((), sys.stderr if sys.stderr.isatty() else None):
        why = way(notice)
        printing.say(why or "shown on the desktop, or with the terminal's bell")
        went_out += not why
        if not why:
            break
    ctx.exit(FAILED if failed or not went_out else 0)
