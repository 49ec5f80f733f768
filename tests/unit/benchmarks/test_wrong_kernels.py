"""The short form of `benchmarks.wrong_kernels`: no wrong kernel is applied."""

from __future__ import annotations

import pytest

from benchmarks.wrong_kernels import applied


@pytest.mark.parametrize(
    ("template", "wrong"),
    [("same_speed", ("drops a term", "nearly")), ("skipping", ("works on NaN", "probes"))],
)
def test_no_wrong_kernel_is_applied(template: str, wrong: tuple[str, ...]) -> None:
    body, ended = applied(f"benchmarks/{template}", seed=0, trials=4)
    assert body == "right"
    assert ended["right: yes"] > 0
    assert not any(ended[f"{name}: yes"] for name in wrong)
