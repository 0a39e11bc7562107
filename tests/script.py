"""Runs a file of the tests as a program, where it can import what lies beside the tests:
`python tests/script.py FILE argument…`."""

import runpy
import sys

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
