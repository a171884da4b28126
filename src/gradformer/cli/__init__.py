"""The program ``gradformer``: one file for each verb, thin over the package.

Exit codes: 0 done; 1 something to mend, said in one line; 2 the command line is wrong; 70 a bug of
ours; 130 stopped by Ctrl-C, 143 by a request to end (both leave a run that ``--resume`` continues).
"""

import os

# Threads that wait by spinning slow each other down several times where cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from gradformer.cli.app import app, main

__all__ = ["app", "main"]
