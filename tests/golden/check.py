"""Hold our models against golden files: ``python tests/golden/check.py FILE…``.

For each file the model is built from the file's config, loaded with the reference's parameters
under the reference's own names, run in eval and in train mode, and every stored quantity that the
adapter observes is compared: outputs, hidden states, attention, loss, all gradients, buffers after
the training step. Reference entries that our model does not have must carry a zero gradient.
One line a file; exit status 1 on any mismatch.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gradformer.errors import GradformerError
from tests.golden.case import Case, Subject, same

# Tolerances relative to max(1, max|reference|), by what is compared; float64 files get FINE, and
# where a file states how far float32 moved the reference itself, ten times that is allowed.
VALUE, GRADIENT, BUFFER, FINE = 5e-5, 1e-4, 1e-5, 1e-12

REQUIRED = ("out", "out_train", "loss")
"""What every file holds; hidden states and attention are compared where they are stored."""


@dataclass
class Verdict:
    """What was compared in one file, the worst error, and what went wrong."""

    compared: int = 0
    worst: float = 0.0
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def compare(
        self,
        name: str,
        ours: Tensor,
        reference: Tensor,
        tolerance: float,
        unit: float = 1.0,
        stated: float | None = None,
    ) -> None:
        """|ours − reference| ≤ stated, or else tolerance · max(unit, max|reference|), everywhere
        and finite."""
        self.compared += 1
        if reference.dtype == torch.float64:
            tolerance, stated = FINE, None
        ours, reference = ours.detach().double(), reference.double()
        if ours.shape != reference.shape:
            self.problems.append(f"{name}: shape {list(ours.shape)}, not {list(reference.shape)}")
            return
        if not reference.numel():
            return
        finite = reference[reference.isfinite()].abs()
        scale = max(unit, float(finite.max()) if finite.numel() else unit)
        same_inf = torch.where(reference.isinf(), ours == reference, True)
        difference = torch.where(reference.isinf() & same_inf, 0.0, (ours - reference).abs())
        error = float(difference.max()) / scale
        tolerance = tolerance if stated is None else stated / scale
        if not error <= tolerance:  # also NaN
            self.problems.append(f"{name}: off by {error:.1e} (allowed {tolerance:.0e})")
        self.worst = max(self.worst, error) if error == error else float("inf")


def stated(case: Case, name: str, least: float = 0.0) -> float | None:
    """The difference that a file's own statement of float32 rounding allows, if there is one."""
    rounding = case.config.get("fp32_vs_fp64_maxabs", {})
    kinds = {name: name, "hidden": "hidden_max", "h0": "hidden_max", "grad": "grad_max"}
    for start, kind in kinds.items():
        if name.startswith(start) and kind in rounding:
            return max(10 * float(rounding[kind]), least)
    return None


def adapter_for(case: Case) -> str:
    """The adapter's name: the folder a file lies in (of ``gt`` also ``gt_node``), or else the model
    its config names."""
    here = Path(__file__).parent / "adapters"
    known = {path.stem for path in here.glob("*.py") if path.stem != "__init__"}
    folder = case.path.parent.name
    model = str(case.config.get("model", "")).lower().replace("-", "_").split(" ")[0]
    for name in (folder, folder.removesuffix("_node"), model):
        if name in known:
            return name
    raise SystemExit(f"{case.path}: no adapter for folder {folder!r} or model {model!r}")


def subjects(path: Path) -> list[Subject]:
    """Our models beside the file (one, or several in one file)."""
    case = Case(path)
    adapter = importlib.import_module(f"tests.golden.adapters.{adapter_for(case)}")
    made: list[Subject] = adapter.subjects(case)
    return made


def check(subject: Subject, verdict: Verdict) -> None:
    """Compare one model with its case; what is wrong is added to ``verdict``."""
    case, model = subject.case, subject.model
    _load(subject, verdict)
    model.eval()
    with torch.no_grad():
        seen = subject.observe()
    model.train()
    trained = subject.train()
    for name, value in [*seen.items(), *trained.items()]:
        if name in case or name in REQUIRED:
            reference = subject.select.get(name, same)(case[name])
            verdict.compare(name, value, reference, VALUE, stated=stated(case, name))
    model.zero_grad(set_to_none=True)
    trained["loss"].backward()
    _gradients(subject, verdict)
    after = case.under("buffer_after_train") | case.under("bn_after")
    buffers = dict(model.named_buffers())
    for ours, ref in subject.names.items():
        if ours in buffers and ref.within(after) and not ref.name.endswith("num_batches_tracked"):
            verdict.compare(f"after/{ref.name}", buffers[ours], ref.of(after), BUFFER)


def _load(subject: Subject, verdict: Verdict) -> None:
    state = dict(subject.model.named_parameters()) | dict(subject.model.named_buffers())
    missing = [n for n, _ in subject.model.named_parameters() if n not in subject.names]
    if missing:
        verdict.problems.append(f"parameters of ours without a reference: {', '.join(missing[:5])}")
    with torch.no_grad():
        for ours, ref in subject.names.items():
            value = ref.of(subject.case.params)
            if value.shape != state[ours].shape:
                verdict.problems.append(
                    f"{ours}: shape {list(state[ours].shape)}, {ref.name} {list(value.shape)}"
                )
                continue
            state[ours].copy_(value)


def _gradients(subject: Subject, verdict: Verdict) -> None:
    case = subject.case
    stored = case.under("grad")
    # Biases in front of a batch norm have a zero gradient: what is stored is rounding of the rest.
    largest = max((float(g.abs().max()) for g in stored.values() if g.numel()), default=1.0)
    unit = max(1.0, 0.1 * largest)
    for ours, parameter in subject.model.named_parameters():
        ref = subject.names.get(ours)
        if ref is None or not ref.within(stored):
            continue
        grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        reference, name = ref.of(stored), f"grad/{ref.name}"
        bound = stated(case, name, 1e-5 * largest)
        verdict.compare(name, grad, reference, GRADIENT, unit, bound)
    for name, leaf in subject.inputs.items():
        if name not in case:
            continue
        grad = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
        reference = subject.select.get(name, same)(case[name])
        bound = stated(case, name, 1e-5 * largest)
        verdict.compare(name, grad, reference, GRADIENT, unit, bound)
    used = {name for ref in subject.names.values() for name in ref.names}
    for name, grad in stored.items():
        if name not in used:
            verdict.skipped.append(name)
            if float(grad.abs().max() if grad.numel() else 0.0) > 0.0:
                verdict.problems.append(f"{name}: not in our model, but its gradient is not zero")


def check_file(path: Path) -> Verdict:
    """Everything in one file."""
    verdict = Verdict()
    for subject in subjects(path):
        check(subject, verdict)
        if verdict.problems:
            unread = ", ".join(subject.case.config.unread())
            verdict.hints.append(f"the adapter does not look at these options: {unread or 'none'}")
    return verdict


def main(files: list[str]) -> int:
    """One line a file; the number of files that do not match."""
    failures = 0
    for name in files:
        try:
            verdict = check_file(Path(name))
        except GradformerError as error:  # a config that our model refuses
            verdict = Verdict(problems=[str(error)])
        except Exception as error:  # one file must not hide the others
            verdict = Verdict(problems=[f"{type(error).__name__}: {error}"])
        word = "FAIL" if verdict.problems else "ok"
        print(
            f"{word:4} {Path(name).parent.name}/{Path(name).name}: {verdict.compared} compared, "
            f"worst {verdict.worst:.1e}, {len(verdict.skipped)} unused reference entries"
        )
        for line in [*verdict.problems[:20], *verdict.hints]:
            print(f"     {line}")
        failures += bool(verdict.problems)
    return failures


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: python tests/golden/check.py FILE…")
    raise SystemExit(1 if main(sys.argv[1:]) else 0)
