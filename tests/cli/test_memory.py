"""What is freed is used again without asking the system for it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from gradformer.cli.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(1 << 26)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_a_second_tensor_takes_the_pages_of_the_first() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    kept, given_back = (
        int(subprocess.check_output([sys.executable, "-c", SCRIPT, how], env=environment))
        for how in ("keep", "")
    )
    assert kept < 100 < given_back
