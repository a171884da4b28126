"""The program ``gradformer``: one file for each verb, thin over the package.

Exit codes: 0 done; 1 something to mend, said in one line; 2 the command line is wrong; 70 a bug of
ours; 129 stopped by the end of the terminal, 130 by Ctrl-C, 141 by the end of a pipe that it writes
to, 143 by a request to end (a run that was being trained goes on with ``--resume``).
"""

import os
import sys
from io import TextIOWrapper

__all__ = ["main"]

# Threads that wait by spinning slow each other down several times where cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    """Run the program; it is loaded here, so that Ctrl-C is one line from the start."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a closed stream is None
            stream.reconfigure(errors="backslashreplace")  # for characters that its encoding lacks
    try:
        from gradformer.cores import hold_openmp
        from gradformer.training.memory import keep_freed_memory

        keep_freed_memory()
        hold_openmp()
        from gradformer.cli.app import app

        app()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
