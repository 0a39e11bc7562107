"""Programs between segue and agents that are no process with lines in and out: each one is started
as a file (`python -I -S`), needs nothing but the standard library, and makes its agent one."""
