"""The fourteen baselines, one file each. All files of this folder are imported, so that a model is
known once its file lies here."""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
