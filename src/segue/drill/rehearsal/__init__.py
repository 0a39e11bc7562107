"""The rehearsal agent: a small agent for machines that have none.

`python -m segue.drill.rehearsal` asks a scripted model on loopback what to do, runs the shell
commands that it names in the working folder, keeps a session file and can continue it. It prints
and writes what Claude Code does or, with `exec`, what Codex does, as both were measured: their
records, their retries, their handling of signals and their exit codes. It needs only the
standard library.
"""
