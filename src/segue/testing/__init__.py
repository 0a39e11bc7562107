"""For authors of other wrappers: a scripted model, agents without an account, and a job that shows
what was lost. Everything a drill is made of, and pytest fixtures in `segue.testing.fixtures`.

    from segue.testing import load, running, Script

    with running(Script(load("short-rate-limit"), window_tokens=200_000)) as model:
        ...  # point the agent to model.url
"""

from segue.drill.answer import Answer, Refusal, Reply
from segue.drill.ask import Ask, Call, Kind
from segue.drill.casts import Cast, Driven, Stage
from segue.drill.casts import find as find_cast
from segue.drill.enclosure import NotEnclosedError, is_enclosed
from segue.drill.enclosure import command as enclosed
from segue.drill.enclosure import why_not as why_not_enclosed
from segue.drill.job import Continuity
from segue.drill.job import check as check_job
from segue.drill.job import make as make_job
from segue.drill.load import load
from segue.drill.load import names as scenario_names
from segue.drill.log import Logged
from segue.drill.process import Leg
from segue.drill.scenario import Job, Rule, Scenario
from segue.drill.script import Script
from segue.drill.server import Model, Running, Server, running

__all__ = [
    "Answer",
    "Ask",
    "Call",
    "Cast",
    "Continuity",
    "Driven",
    "Job",
    "Kind",
    "Leg",
    "Logged",
    "Model",
    "NotEnclosedError",
    "Refusal",
    "Reply",
    "Rule",
    "Running",
    "Scenario",
    "Script",
    "Server",
    "Stage",
    "check_job",
    "enclosed",
    "find_cast",
    "is_enclosed",
    "load",
    "make_job",
    "running",
    "scenario_names",
    "why_not_enclosed",
]
