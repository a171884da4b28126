"""One self-contained page for a run, for several beside each other, or for explained graphs.

A run is read as a ``history``. The ``page`` has sections: ``outcome`` (with ``pairs`` of runs),
``curves``, ``patterns``, ``answers``, ``settings``; ``explain`` is a page of its own. Drawn are
``plots`` on ``scales``, ``matrices`` and ``attention``, written as ``markup``, or as a ``sheet`` to
keep. ``levers`` tells what mattered in a search.
"""

from gradformer.report.explain import write_explanation
from gradformer.report.page import write_report

__all__ = ["write_explanation", "write_report"]
