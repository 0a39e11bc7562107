"""segue keeps AI coding agents working.

The public names are loaded on first use, so that `import segue` costs nothing in a hook.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own would cost every hook 12 ms

if TYPE_CHECKING:
    from segue.api import classify
    from segue.core.policy import Policy
    from segue.core.sessions.reading import Reading, Zone
    from segue.core.stops.reasons import StopReason
    from segue.core.stops.types import Stop
    from segue.runs.library import Result, RunFailed, run

__all__ = [
    "Policy",
    "Reading",
    "Result",
    "RunFailed",
    "Stop",
    "StopReason",
    "Zone",
    "__version__",
    "classify",
    "run",
]

_HOMES = {
    "classify": "segue.api",
    "Policy": "segue.core.policy",
    "Reading": "segue.core.sessions.reading",
    "Zone": "segue.core.sessions.reading",
    "Stop": "segue.core.stops.types",
    "StopReason": "segue.core.stops.reasons",
    "Result": "segue.runs.library",
    "RunFailed": "segue.runs.library",
    "run": "segue.runs.library",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'segue' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
