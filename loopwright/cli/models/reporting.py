"""``loopwright report LOG --model model.onnx``: the kernels of a model, as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopwright.cli.models.given_model import find_model
from loopwright.errors import RecordError

if TYPE_CHECKING:
    from loopwright.inspection.report.model_view import TunedKernels
    from loopwright.inspection.report.page_data import ModelPage
    from loopwright.records import Log


def model_of(file: str, shapes: Sequence[str], log: Log, layouts: str | None = None) -> ModelPage:
    """The records of a log for an ONNX model, with ``shapes`` such as ``name=1x3x224x224`` in place
    of those that it declares, and in the layouts of a file; the target is that of the records.
    """
    from loopwright.inspection.report import model_page

    target = next((record.target for record in log), None)
    if target is None:
        raise RecordError(f"{log.path}: no record of any kernel of {file}; it is empty")
    kind = str(target.get("kind"))
    return model_page(Path(file).name, _kernels(file, shapes, kind, layouts), log)


def _kernels(
    file: str, shapes: Sequence[str], kind: str, layouts: str | None
) -> list[TunedKernels]:
    """The kernels of a model that are tuned, in every implementation."""
    from loopwright.graph import extract_tasks
    from loopwright.inspection.report import TunedKernels
    from loopwright.tuner.run.state import flop_of

    model = find_model(file, shapes, kind, max_error=_ANY, layouts=layouts)
    with model.limits():
        tasks = extract_tasks(model.module, model.target, layouts=model.layouts)
    groups: dict[str, list[int]] = {}
    for at, one in enumerate(tasks):
        groups.setdefault(one.group, []).append(at)
    found = []
    for places in groups.values():
        own = [tasks[at] for at in places]
        plain = min(own, key=lambda one: one.implementation != "definition")
        ways = {one.task.key: one.implementation for one in own}
        found.append(TunedKernels(str(plain.task), plain.weight, flop_of(plain.task), ways))
    return found


#: Whatever a log holds was allowed when it was made.
_ANY = 1.0
