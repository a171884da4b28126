"""The fourteen baselines, one file each. All files of this folder are imported, so that a model is
known once its file lies here; but for kernels, which need Triton and are imported where they run.
"""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    if not _found.name.endswith("_kernels"):
        import_module(f"{__name__}.{_found.name}")
