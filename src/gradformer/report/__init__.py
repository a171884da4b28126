"""One self-contained page for a run, for several beside each other, or for explained graphs."""

from gradformer.report.explain import write_explanation
from gradformer.report.page import write_report

__all__ = ["write_explanation", "write_report"]
