"""Logs as AutoTVM's scripts read them."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace

import pytest

from loopwright import autotvm, records
from loopwright.errors import LoopwrightError, RecordError, SpaceError, UsageError
from loopwright.measure import MeasureError
from loopwright.task import why_not_applied
from loopwright.task.dispatch import clear_fallback_cache
from loopwright.testing.tuner_contract import FakeMeasurer
from loopwright.tuner.model.transfer_model import History

TASK = autotvm.task.create("matmul", args=(16, 16, 16, False, False, "float32"), target="llvm")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    autotvm.tuner.RandomTuner(TASK).tune(
        n_trial=5,
        measure_option=FakeMeasurer(),
        callbacks=[autotvm.callback.log_to_file(path)],
    )
    return path


def written(path, **fields):
    """The log with one more record, changed."""
    record = replace(records.load(path).records[0], **fields)
    return f"{path.read_text()}{record.to_line()}\n"


def test_pairs_of_inputs_and_results(log):
    pairs = list(autotvm.record.load_from_file(log))
    known = records.load(log).records
    assert len(pairs) == len(known)
    for (inp, result), record in zip(pairs, known, strict=True):
        assert isinstance(inp, autotvm.MeasureInput)
        assert inp.task.workload == TASK.workload
        assert inp.target.canonical == TASK.target.canonical
        assert inp.config.values == record.config
        assert TASK.config_space.get(inp.config.index).values == record.config
        assert result.costs == record.times
        assert result.error_no == 0
    assert len({id(inp.task) for inp, _ in pairs}) == 1
    best = min(pairs, key=lambda pair: sum(pair[1].costs) / len(pair[1].costs))
    assert best[0].config.index is not None


def test_pairs_are_a_history(log):
    tuner = autotvm.tuner.XGBTuner(TASK)
    pairs = autotvm.record.load_from_file(log)
    assert tuner.load_history(pairs, min_seed_records=100) == len(records.load(log))


def test_pairs_without_a_space_teach_nothing(log):
    pairs = list(autotvm.record.load_from_file(log))
    lines = [foreign(name="no/such"), foreign(unroll=None), foreign(target="llvm -mtriple=s390x")]
    strangers = [autotvm.record.decode(line) for line in lines]
    history = History()
    history.add_given(TASK, [*pairs, *strangers])
    assert history.foreign == len(strangers)
    assert [len(inp.task.config_space) for inp, _ in strangers] == [0, 0, 0]
    with pytest.raises(SpaceError):
        strangers[0][0].task.config_space.get(0)


def test_pairs_are_applied_as_their_log_is(log):
    pairs = autotvm.record.load_from_file(log)
    with autotvm.apply_history_best(pairs) as given, autotvm.apply_history_best(log) as same:
        assert given.explain(TASK).record == same.explain(TASK).record
        assert given.explain(TASK).record is not None


def test_what_cannot_be_read_is_said_once(log, tmp_path, caplog):
    clear_fallback_cache()
    other = tmp_path / "other.jsonl"
    key = records.task_key("no/such", [1], "llvm")
    other.write_text(written(log, op="no/such", task=key) + "torn\n")
    with caplog.at_level(logging.WARNING, "loopwright"):
        for _ in range(2):
            *_, last = autotvm.record.load_from_file(other)
    assert last[0].task.workload == ("no/such", *TASK.args)
    assert len(caplog.messages) == 1
    assert "1 line skipped" in caplog.messages[0]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"args": [16, 16], "task": records.task_key("matmul", [16, 16], "llvm")},
            "missing a required",
        ),
        ({"target": {"kind": "abacus"}}, "unknown target 'abacus'"),
        ({"config": {"tile_i": "x"}}, "this configuration does not fit the template"),
        (
            {"op": "no/such", "args": [1, [2, "a"]], "task": "other"},
            "the template 'no/such' is not registered",
        ),
    ],
)
def test_records_that_fit_nothing_have_their_names_and_numbers(log, tmp_path, fields, text):
    other = tmp_path / "other.jsonl"
    other.write_text(written(log, **fields))
    *_, pair = autotvm.record.load_from_file(other)
    inp, result = pair
    assert inp.task.name == pair.record.op
    assert json.loads(json.dumps(inp.task.args)) == pair.record.args
    assert inp.target.kind == pair.record.kind
    assert inp.config.values == pair.record.config
    assert result.costs == pair.record.times
    for use in (lambda: inp.task.instantiate(inp.config), lambda: inp.task.flop):
        with pytest.raises(LoopwrightError, match=text):
            use()
    assert autotvm.record.decode(autotvm.record.encode(*pair))[1] == result


def test_values_outside_of_the_space_have_no_index(log, tmp_path):
    config = {**TASK.config_space.get(0).values, "tile_i": [-1, 1, 99]}
    (tmp_path / "a.jsonl").write_text(written(log, config=config))
    pair = list(autotvm.record.load_from_file(tmp_path / "a.jsonl"))[-1]
    assert pair[0].config.index is None


def test_no_log(tmp_path):
    with pytest.raises(RecordError, match="no log at"):
        list(autotvm.record.load_from_file(tmp_path / "nowhere.jsonl"))


def test_an_open_file_is_read_as_a_file_is(log):
    wanted = [(i.config.index, r.costs) for i, r in autotvm.record.load_from_file(log)]
    with log.open() as file:
        for buffer in (file, io.StringIO(log.read_text()), log.read_bytes().splitlines(True)):
            pairs = autotvm.record.load_from_buffer(buffer)
            assert [(i.config.index, r.costs) for i, r in pairs] == wanted


def test_a_log_is_split_into_one_file_for_each_task(log, tmp_path):
    other = tmp_path / "two.jsonl"
    key = records.task_key("matmul", [16, 16, 32, False, False, "float32"], "llvm")
    args = [16, 16, 32, False, False, "float32"]
    text = written(log, args=args, task=key, dag="another")
    other.write_text(text + text.splitlines()[-1] + "\n")
    files = autotvm.record.split_workload(other, False)
    assert {file.parent for file in files} == {tmp_path / "two.jsonl.tasks"}
    counts = {len({r.task for r in records.load(file)}): len(records.load(file)) for file in files}
    assert sorted(len(records.load(file)) for file in files) == [1, len(records.load(log))]
    assert set(counts) == {1}
    assert (
        autotvm.record.split_workload(other, out_dir=tmp_path / "there")[0].parent.name == "there"
    )


# -- AutoTVM's own form ------------------------------------------------------------------------


@autotvm.template("test/autotvm_kinds")
def kinds(n):
    """A knob of each kind."""
    s, (a, b, c) = tuple(TASK.instantiate(0))
    cfg = autotvm.get_config()
    cfg.define_split("tile", n, num_outputs=3)
    cfg.define_reorder("order", [1, 2, 3], "all")
    cfg.define_annotate("ann", [1, 2], "try_unroll_vec")
    cfg.define_knob("unroll", [0, 512, True])
    return s, [a, b, c]


KINDS = autotvm.task.create("test/autotvm_kinds", args=(16,), target="llvm")


def foreign(
    *,
    target="llvm -keys=cpu -link-params=0",
    name="test/autotvm_kinds",
    args=(16,),
    result=((0.002, 0.004), 0, 1.5, 1600000000.25),
    version=0.2,
    **entity,
):
    """A line as AutoTVM writes it."""
    knobs = {
        "tile": ["sp", [-1, 4, 2]],
        "order": ["re", [2, 0, 1]],
        "ann": ["an", ["unroll", "vec"]],
        "unroll": ["ot", 512],
        **entity,
    }
    listed = [[knob, *value] for knob, value in knobs.items() if value]
    config = {"index": 7, "code_hash": None, "entity": listed}
    line = {"input": [target, name, list(args), {}], "config": config, "result": result}
    return json.dumps({**line, "version": version, "tvm_version": "0.8.0"})


def test_a_line_of_autotvm_is_read_and_written_again():
    inp, result = autotvm.record.decode(foreign())
    assert inp.task.workload == ("test/autotvm_kinds", 16)
    assert inp.config.values == {
        "tile": [-1, 4, 2], "order": [2, 0, 1], "ann": ["unroll", "vec"], "unroll": 512,
    }  # fmt: skip
    assert (result.costs, result.error_no, result.all_cost) == ((0.002, 0.004), 0, 1.5)
    assert result.timestamp == 1600000000.25
    before, after = json.loads(foreign()), json.loads(autotvm.record.encode(inp, result))
    assert after["input"][1:] == before["input"][1:]
    assert after["input"][0] == "llvm"
    assert after["config"]["entity"] == before["config"]["entity"]
    assert (after["result"], after["version"]) == (before["result"], 0.2)


@pytest.mark.parametrize("index", [0, 5, 100, len(KINDS.config_space) - 1])
def test_what_is_written_is_read_as_it_was(index):
    inp = autotvm.MeasureInput(KINDS.target, KINDS, KINDS.config_space.get(index))
    wrong = MeasureError("WRONG_ANSWER", "differs by 3")
    for result in (
        autotvm.MeasureResult(times=(0.5, 0.25), run_s=2.0, ts=3.5),
        autotvm.MeasureResult(error=wrong, run_s=2.0, ts=3.5),
    ):
        line = autotvm.record.encode(inp, result)
        again, read = autotvm.record.decode(line)
        assert again.config.index == index
        assert autotvm.record.measure_str_key(again) == autotvm.record.measure_str_key(inp)
        assert (read.costs, read.error_no, read.all_cost, read.timestamp) == (
            result.costs, result.error_no, 2.0, 3.5,
        )  # fmt: skip
        assert json.loads(line)["result"][0] == list(result.costs or (1e9,))


def test_lines_of_loopwright_are_decoded_too(log):
    record = records.load(log).records[0]
    inp, result = autotvm.record.decode(record.to_line())
    assert (inp.config.values, result.costs) == (record.config, record.times)
    header = next(line for line in log.read_text().splitlines() if '"header"' in line)
    for nothing in ("", "# a comment", header):
        assert autotvm.record.decode(nothing) is None


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("torn {", "not JSON|torn line"),
        (foreign(version=0.1), "TVM record of version 0.1"),
    ],
)
def test_what_cannot_be_decoded_is_said(row, text):
    with pytest.raises(RecordError, match=text):
        autotvm.record.decode(row)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (foreign(name="no/such"), "the template 'no/such' is not registered"),
        (foreign(target="vulkan -model=v100"), "unknown target 'vulkan'"),
        (foreign(target="llvm -device=arm_cpu -mtriple=s390x-linux-gnu"), "option mtriple"),
        (foreign(unroll=None, depth=["ot", 3]), r"depth too many, unroll missing"),
        (foreign(tile=["sp", [-1, 4]]), r"knob 'tile' \(split\) cannot have the value"),
    ],
)
def test_a_line_that_fits_nothing_is_decoded_and_encoded(row, text):
    inp, result = autotvm.record.decode(row)
    with pytest.raises(LoopwrightError, match=text):
        inp.task.instantiate(inp.config)
    written, line = json.loads(autotvm.record.encode(inp, result)), json.loads(row)
    assert (written["input"], written["result"]) == (line["input"], line["result"])
    assert written["config"] == line["config"]
    assert (inp.config.index, result.costs) == (7, (0.002, 0.004))
    assert inp.config["tile"].size[:2] == (-1, 4)
    assert inp.config["order"].perm == (2, 0, 1)
    assert inp.config["ann"].anns == ("unroll", "vec")


def test_a_target_that_is_not_resolved_is_described():
    inp, _ = autotvm.record.decode(foreign(name="no/such", target="opencl -device=mali -model=rk"))
    target = inp.target
    assert (target.kind.name, target.model, target.keys) == (
        "opencl",
        "rk",
        ("mali", "opencl", "gpu"),
    )
    assert str(target) == "opencl -device=mali -model=rk"
    inp, _ = autotvm.record.decode(
        foreign(name="no/such", target="llvm -mcpu=znver3 -num-threads=3")
    )
    assert (inp.target.mcpu, inp.target.num_threads, inp.target.keys) == ("znver3", 3, ("cpu",))


def test_pickled_lines_are_refused():
    inp = autotvm.MeasureInput("llvm", KINDS, KINDS.config_space.get(0))
    for call in (
        lambda: autotvm.record.decode("x", protocol="pickle"),
        lambda: autotvm.record.encode(inp, autotvm.MeasureResult(), protocol="pickle"),
    ):
        with pytest.raises(UsageError, match="protocol='pickle' is not supported; leave it out"):
            call()


def test_a_key_is_of_target_workload_and_configuration():
    key = autotvm.record.measure_str_key
    one, two = (autotvm.MeasureInput("llvm", KINDS, KINDS.config_space.get(i)) for i in (1, 2))
    assert key(one) != key(two)
    assert key(one, include_config=False) == key(two, include_config=False)


def test_a_log_of_autotvm_says_of_each_record_why_it_is_not_applied(tmp_path):
    lines = {
        foreign(result=((0.003,), 0, 1.0, 5.0)): "",
        foreign(result=((1e9,), 4, 1.0, 5.0)): "failed (RUN_ERROR)",
        foreign(unroll=None): "it has other knobs than the template now (unroll missing), and no "
        "trace",
        foreign(tile=["sp", [-1, 4]]): "its configuration fails now: knob 'tile' (split) cannot "
        "have the value [-1, 4]",
        foreign(name="no/such"): "the template 'no/such' is not registered; import the file that "
        "defines it",
        foreign(target="vulkan"): "there is no such task: unknown target 'vulkan'; known: llvm, c, "
        "interp, opencl, cuda",
        foreign(args=()): "there is no such task: template 'test/autotvm_kinds' takes (n), got "
        "(): missing a required argument: 'n'",
    }
    path = tmp_path / "autotvm.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    log = records.load(path)
    assert not log.skipped
    assert why_not_applied(log.records) == list(lines.values())
    with autotvm.apply_history_best(path) as history:
        choice = history.explain(KINDS)
        assert choice.record == log.records[0]
        assert history.query("llvm", KINDS.workload).values == log.records[0].config
    assert len(list(autotvm.record.load_from_file(path))) == len(lines)
