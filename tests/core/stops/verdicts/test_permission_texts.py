"""A permission that only the user can give, in the forms in which clients ask for it."""

import pytest

from segue import classify
from segue.agents.ending import Channel


def reason(text: str, channel: Channel) -> str:
    return classify(text, channel=channel).reason.value


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        (
            "needs_user",
            "log",
            "│◆ Permission required: bash (rm -rf build)│ ● Allow once│ ○ "
            "Always allow: rm *│ ○ Reject└",
        ),
        (
            "needs_user",
            "tui",
            "◆ Permission required: edit (src/main.rs)\n│ ● Allow once\n│ ○ "
            "Always allow: src/*\n│ ○ Reject\n└",
        ),
        (
            "needs_user",
            "stderr",
            "! permission requested: webfetch (https://example.com); auto-rejecting",
        ),
        (
            "needs_user",
            "stdout",
            "! permission requested: edit (src/a.ts); auto-rejecting\n✗ Edit "
            "src/a.ts failed\nError: The user rejected permission to use "
            "this specific tool call.",
        ),
        (
            "needs_user",
            "stderr",
            "permission requested: read (/etc/passwd); auto-denied, no terminal attached",
        ),
        (
            "needs_user",
            "tui",
            'Do you want to run this script?\nIf yes, press enter. Otherwise, type "n"',
        ),
        ("needs_user", "tui", "Do you want to let the agent delete 3 files?\n  yes / no / always"),
        (
            "needs_user",
            "stream-json",
            '{"type":"system","subtype":"permission_denied","tool_name":"'
            'Bash","message":"Claude '
            "requested permissions to use Bash, but you haven't granted it "
            'yet."}',
        ),
        (
            "needs_user",
            "stdout",
            '{"type":"system","subtype":"permission_denied","tool_name":"Edit",\n'
            ' "message":"Claude requested permissions to edit /a, but you '
            "haven't granted it yet.\"}",
        ),
        (
            "needs_user",
            "tui",
            "Claude requested permissions to write to /srv/x.txt, but you haven't granted it yet.",
        ),
        (
            "needs_user",
            "stderr",
            "The agent requested permission to run `make deploy`, but you have not granted it.",
        ),
        ("needs_user", "log", "[watcher] Berechtigung verweigert: Edit — in agents.yaml freigeben"),
        (
            "needs_user",
            "log",
            "[runner] Permission denied: Bash — set permission_mode or "
            "allowed_tools in agents.yaml",
        ),
        (
            "needs_user",
            "log",
            "[supervisor] Tool permission denied: Write - add it to allowed_tools",
        ),
        (
            "needs_user",
            "stderr",
            "Error: The user rejected permission to use this specific tool call.",
        ),
    ],
)
def test_a_permission_that_nobody_gave_needs_the_user(
    wanted: str, channel: Channel, text: str
) -> None:
    assert reason(text, channel) == wanted


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        (
            "stdout",
            "## Permissions\n\nPermission required: the agent asks before it "
            "runs a command. Choose Allow once, Always allow or Reject.",
        ),
        (
            "stdout",
            'When opencode runs without a terminal it prints "permission '
            'requested: bash (…); auto-rejecting" and goes on.',
        ),
        (
            "stdout",
            "! permission requested: bash (ls /etc); auto-rejecting\n✗ ls "
            "/etc failed\nError: The user rejected permission to use this "
            "specific tool call.\n\nI could not list that folder, so I used "
            "the files in the project instead. The parser is finished and "
            "all tests pass.",
        ),
        (
            "stdout",
            "You can set permission_mode in agents.yaml so that the agent "
            "does not ask for permission.",
        ),
        ("log", "[sshd] Permission denied: user root from 10.0.0.1"),
        ("stdout", 'The dialog asks "Do you want to execute this code?" and waits for enter.'),
        (
            "stdout",
            "Do you want to know why this is slow?\nThe index is missing, so "
            "each query reads the whole table.",
        ),
        (
            "stdout",
            "Do you want to execute this code? Then press the green button "
            "in the toolbar of the notebook, as the guide says on page 3.",
        ),
        (
            "stdout",
            'const PROMPT = "Do you want to execute this code?";\nprint("If '
            'yes, press enter. Otherwise, type no");',
        ),
        (
            "stdout",
            'msg = "Claude requested permissions to write to %s, but you haven\'t granted it yet."',
        ),
        ("stdout", 'fix(tui): show "Claude requested permissions to write" only once (#412)'),
        (
            "stdout",
            "| Allow once | run it this time |\n| Always allow | never ask "
            "again |\n| Reject | do not run it |",
        ),
        ("stdout", "enum State { awaiting_approval, running, done }"),
        ("stdout", "status can be one of: queued, running, awaiting_approval, completed, failed"),
        ("stdout", 'def awaiting_input(self) -> bool:\n    return self.status == "awaiting_input"'),
        (
            "stdout",
            "Permission denied: Bash — allow it in settings.json\n\nI then "
            "used the Read tool instead and finished the change; all tests "
            "pass now.",
        ),
        # A file's permission.
        ("stdout", "bash: ./frob.sh: Permission denied"),
        ("log", "2026-05-01 10:00:00 WARN open /srv/frob.log: permission denied"),
        ("stdout", "chmod: changing permissions of '/srv': Operation not permitted"),
    ],
)
def test_a_text_about_permissions_is_no_stop(channel: Channel, text: str) -> None:
    assert reason(text, channel) == "unknown"
