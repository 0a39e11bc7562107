"""For authors of other wrappers: a scripted model, agents without an account, and a job that shows
what was lost. Everything a drill is made of, and pytest fixtures in `segue.testing.fixtures`.

    from segue.testing import load, running, Script

    with running(Script(load("short-rate-limit"), window_tokens=200_000)) as model:
        ...  # point the agent to model.url
"""

from segue.drill.casts import Cast, Driven, PlayStage
from segue.drill.casts import find as find_cast
from segue.drill.model.answer import ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Kind
from segue.drill.model.log import Logged
from segue.drill.model.script import Script
from segue.drill.model.server import Model, ModelServer, Running, running
from segue.drill.plays.enclosure import NotEnclosedError, is_enclosed
from segue.drill.plays.enclosure import command as enclosed
from segue.drill.plays.enclosure import why_not as why_not_enclosed
from segue.drill.plays.job import Continuity
from segue.drill.plays.job import check as check_job
from segue.drill.plays.job import make as make_job
from segue.drill.plays.process import PlayLeg
from segue.drill.scenarios.load import load
from segue.drill.scenarios.load import names as scenario_names
from segue.drill.scenarios.types import Job, Scenario, ScenarioRule

__all__ = [
    "Ask",
    "Call",
    "Cast",
    "Continuity",
    "Driven",
    "Job",
    "Kind",
    "Logged",
    "Model",
    "ModelAnswer",
    "ModelReply",
    "ModelServer",
    "NotEnclosedError",
    "PlayLeg",
    "PlayStage",
    "Refusal",
    "Running",
    "Scenario",
    "ScenarioRule",
    "Script",
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
