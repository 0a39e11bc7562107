"""One leg of a run: its keeper, its process, its stream, its verdict."""
