"""Models outside of the package: the Python files that ``GRADFORMER_MODELS`` names are imported.

So the program knows what they register, also where it opens a run of such a model again.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from gradformer.errors import ConfigError

VARIABLE = "GRADFORMER_MODELS"
HINT = f"a model of your own: name its file in {VARIABLE}"


def import_own_models() -> None:
    """Import every file that the variable names, once."""
    for name in os.environ.get(VARIABLE, "").split(os.pathsep):
        if name:
            _import(Path(os.path.expanduser(name)).resolve())


@cache
def _import(path: Path) -> None:
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"{VARIABLE}: {path} is no Python file; name files, as in models/tiny.py")
    whole = re.sub(r"\W", "_", str(path.with_suffix("")))  # two folders may have the same name
    spec = spec_from_file_location(f"gradformer_own{whole}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for the names in its annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(
            f"{VARIABLE}: {path} cannot be imported ({type(error).__name__}: {error}); --debug "
            "shows where"
        ) from error
