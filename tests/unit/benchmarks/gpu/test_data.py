"""Inputs, checks of answers and counts of work, against the references of the operators."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.cases import CASES, Case, chosen
from benchmarks.gpu.data import Array, inputs, problem
from benchmarks.workloads import traffic
from loopwright.errors import UsageError
from loopwright.task import Task, create_task

WITH_TEMPLATE = [case for case in CASES if case.template]
by_name = pytest.mark.parametrize("case", WITH_TEMPLATE, ids=lambda case: case.name)


def task_of(case: Case) -> Task:
    return create_task(case.template, case.args(small=True), f"{case.kinds[0]} -arch=sm_90")


def answer_of(case: Case, given: list[Array]) -> Array:
    """What NumPy says, in float64 rounded once to the type of the kernel."""
    reference = task_of(case).reference
    wide = given if case.tf32 else [a.astype(np.float64) for a in given]
    found = wide[0] if reference is None else reference(*wide)
    return np.asarray(found).astype(np.float32)


@by_name
def test_right_answers_pass(case: Case) -> None:
    given = inputs(case, case.small)
    assert problem(case, given, answer_of(case, given)) == ""


@by_name
def test_one_wrong_element_is_noticed_wherever_it_is(case: Case) -> None:
    given = inputs(case, case.small)
    right = answer_of(case, given)
    rng = np.random.default_rng(0)
    for at in (0, right.size - 1, *rng.integers(0, right.size, 20)):
        wrong = right.copy()
        wrong.flat[at] += 1
        assert "wrong" in problem(case, given, wrong), at


@by_name
def test_libraries_may_round_but_not_compute_something_else(case: Case) -> None:
    given = inputs(case, case.small)
    right = answer_of(case, given)
    rounded = right * (1 + 1e-6 * np.random.default_rng(0).standard_normal(right.shape))
    exact = case.template not in ("softmax", "layer_norm")
    assert ("wrong" in problem(case, given, rounded.astype(np.float32))) == exact
    if exact and case.name != "copy":
        assert problem(case, given, rounded.astype(np.float32), 1e-3) == ""
    assert "wrong" in problem(case, given, np.roll(right, 1, axis=-1), 1e-3)


@by_name
def test_elements_that_were_not_written_are_noticed(case: Case) -> None:
    given = inputs(case, case.small)
    answer = answer_of(case, given)
    answer.flat[5] = np.nan
    assert problem(case, given, answer) == f"1 of {answer.size} elements are not finite"


@by_name
def test_rows_that_are_not_sampled_are_checked_by_their_sums(case: Case) -> None:
    if case.template not in ("softmax", "layer_norm"):
        return
    sizes = (4000, 64)
    given = inputs(case, sizes)
    right = answer_of_sizes(case, given, sizes)
    assert problem(case, given, right) == ""
    noticed = 0
    for row in range(0, 4000, 400):
        wrong = right.copy()
        wrong[row, 7] += 0.5
        noticed += "wrong" in problem(case, given, wrong)
    assert noticed == 10


def answer_of_sizes(case: Case, given: list[Array], sizes: tuple[int, ...]) -> Array:
    reference = create_task(case.template, sizes, "cuda -arch=sm_90").reference
    assert reference is not None
    return np.asarray(reference(*[a.astype(np.float64) for a in given])).astype(np.float32)


@by_name
def test_inputs_fit_the_kernel_and_come_from_the_seed(case: Case) -> None:
    _, tensors = task_of(case).instantiate(task_of(case).config_space.get(0))
    given = inputs(case, case.small, seed=1)
    assert [(a.shape, str(a.dtype)) for a in given] == [
        (tuple(t.shape), t.dtype) for t in tensors[:-1]
    ]
    for a, b in zip(given, inputs(case, case.small, seed=1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(given, inputs(case, case.small, 2), strict=True))
    assert all((a == np.rint(a)).all() for a in given)


@by_name
def test_the_work_is_what_operators_count(case: Case) -> None:
    task = task_of(case)
    _, tensors = task.instantiate(task.config_space.get(0))
    counted = task.flop if case.bound == "compute" else traffic(tensors)
    assert case.work(small=True) == counted


@pytest.mark.parametrize("small", [False, True])
def test_sums_stay_integers_that_float32_holds(small: bool) -> None:
    largest = 3
    for case in CASES:
        match case.template:
            case "matmul" | "matmul_tensor_core" | "batch_matmul":
                terms = case.sizes(small)[-1]
            case "conv2d":
                _, c, _, _, _, kh, kw, _, _ = case.sizes(small)
                terms = c * kh * kw
            case _:
                continue
        assert terms * largest**2 < 1 << 24


def test_tasks_are_chosen_by_name() -> None:
    assert [c.name for c in chosen("softmax_1GiB, copy", "cuda")] == ["copy", "softmax_1GiB"]
    assert [c.name for c in chosen("", "cuda")] == [c.name for c in CASES]
    left_out = {"mma_peak", "matmul_4096_fp16", "matmul_4096_tf32"}
    assert {c.name for c in CASES} - {c.name for c in chosen("", "opencl")} == left_out
    with pytest.raises(
        UsageError, match=r"unknown task 'softmax_1Gi' .did you mean 'softmax_1GiB'"
    ):
        chosen("softmax_1Gi", "cuda")
    with pytest.raises(UsageError, match="mma_peak does not run on opencl, only on cuda"):
        chosen("mma_peak", "opencl")
