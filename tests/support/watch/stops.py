"""What test_stops and other tests share."""

from typing import Any

from segue.core.policy import Policy
from segue.watch.handoffs.messages import Messages

NOON = 1_794_830_400.0


class FakeRules:
    def __init__(self, **policy: Any) -> None:
        self.given = {"auto_resume": True, "resume_gap_s": 10.0, **policy}
        self._messages = Messages({})

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        return Policy(**self.given)

    def messages(self, cwd: str) -> Messages:
        return self._messages
