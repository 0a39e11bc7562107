"""How an agent that has just compacted its conversation waits for what segue gives it.

Some agents run a program of segue's between their own compaction and their next request: claude a
hook, pi an extension. That program and segue meet in the leg's folder. The program writes
`halt-N.json` with the summary, if it knows it, and waits. segue writes `halt-N.answer`. The program
renames that to `halt-N.taken`, and passes the words on. If no answer comes in time, it renames its
own file to `halt-N.late` (after 10 s), and the agent continues as it would have without segue.

The programs are `claude/halt.py` and `pi/halt.js`. Neither can import this module, so the names of
the files are repeated there.
"""

FOLDER = "SEGUE_HALTS"
"""The variable that names the folder to a program without arguments."""


def asked(number: int) -> str:
    """The name of the file with which the program asks for the words."""
    return f"halt-{number}.json"


def answer(number: int) -> str:
    """The name of the file with segue's words, which are empty if there is nothing to say."""
    return f"halt-{number}.answer"


def taken(number: int) -> str:
    """The name of the answer once the program has read it."""
    return f"halt-{number}.taken"


def late(number: int) -> str:
    """The name of the program's file after it has given up."""
    return f"halt-{number}.late"
