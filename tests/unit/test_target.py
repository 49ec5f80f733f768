"""Targets: parsing, resolution, equality. The one in force: `test_target_context`."""

from __future__ import annotations

import json
import pickle
import platform
import subprocess
import sys
from typing import Any

import pytest

from loopwright.errors import TargetError
from loopwright.target import (
    COMMON_CPUS,
    KINDS,
    OPTIONS,
    Target,
    bf16_dot_lanes,
    create,
    dot_lanes,
    host_cpu,
    pair_lanes,
)
from loopwright.target.cpu import ALIASES, check_triple

HOST, FEATURES = host_cpu()


# ------------------------------------------------------------------ parsing


def test_the_default_is_the_host() -> None:
    t = Target()
    assert (t.kind, t.mcpu, t.mattr) == ("llvm", HOST, FEATURES)
    assert (t.num_threads, t.fastmath, t.loop_vectorize, t.loop_unroll) == (0, False, False, False)
    assert t == Target("llvm") == Target({"kind": "llvm"}) == Target({}) == Target(t)


def test_strings_dictionaries_and_keywords_say_the_same() -> None:
    a = Target("llvm -num-threads=2 -fastmath=true -prefer-vector-width=256")
    b = Target({"kind": "llvm", "num_threads": 2, "fastmath": True, "prefer_vector_width": 256})
    c = Target("llvm", num_threads="2", fastmath=1, prefer_vector_width=256)
    d = Target({"kind": "llvm", "num-threads": 2, "fastmath": "True", "prefer-vector-width": "256"})
    assert a == b == c == d
    assert a.num_threads == 2
    assert a.fastmath is True


def test_tvm_s_names() -> None:
    t = Target(target="llvm", host="llvm -num-threads=1")
    assert t.kind.name == t.kind == "llvm"
    assert t.host == create("llvm -num-threads=1")
    assert json.loads(json.dumps(t.canonical))["kind"] == "llvm"
    assert type(t.canonical["kind"]) is str
    assert Target.current(allow_none=True) is None
    with t:
        assert Target.current(allow_none=True) is Target.current() is t


def test_keywords_win() -> None:
    assert Target("llvm -num-threads=2", num_threads=3).num_threads == 3
    assert Target(Target("llvm -num-threads=2"), num_threads=1).num_threads == 1


def test_a_single_dash_or_two() -> None:
    assert Target("llvm --num-threads=2") == Target("llvm -num_threads=2")


def test_native_is_the_host() -> None:
    assert Target("llvm -mcpu=native") == Target("llvm")
    assert Target(f"llvm -mcpu={HOST}") == Target("llvm")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("", "a target is a string such as 'llvm' or a dictionary, got ''"),
        ("  ", "a target is a string such as 'llvm' or a dictionary"),
        (3, "a target is a string such as 'llvm' or a dictionary, got 3"),
        ("lvm", r"unknown target 'lvm' \(did you mean 'llvm'\?\); known: llvm"),
        ("cupa", "unknown target 'cupa'"),
        ({"kind": None}, "unknown target None"),
        (
            "llvm -num-thread=2",
            r"unknown target option 'num_thread' of 'llvm' \(did you mean 'num_threads'\?\)",
        ),
        (
            {"kind": "llvm", "cpu": "x"},
            r"unknown target option 'cpu' of 'llvm' \(did you mean 'mcpu'\?\); known",
        ),
        ("llvm fast", "options are written -name=value, got 'fast'"),
        ("llvm -fastmath", "options are written -name=value, got '-fastmath'"),
        ("llvm -mcpu='x", "No closing quotation"),
        ("llvm -fastmath=maybe", "target option fastmath: expected true or false, got 'maybe'"),
        (
            "llvm -num-threads=two",
            "target option num_threads: expected a number, 0 or more, got 'two'",
        ),
        (
            "llvm -num-threads=-1",
            "target option num_threads: expected a number, 0 or more, got '-1'",
        ),
        (
            {"num_threads": 1.5},
            r"target option num_threads: expected a number, 0 or more, got 1\.5",
        ),
        ({"num_threads": True}, "target option num_threads: expected a number"),
        ({"mcpu": 3}, "target option mcpu: expected text, got 3"),
        ("llvm -mcpu=", "target option mcpu: expected text, got ''"),
        ("llvm -prefer-vector-width=100", "expected 0, 128, 256 or 512, got '100'"),
        ("llvm -mattr=avx2", r"target option mattr: expected '\+avx2,-avx512f', got 'avx2'"),
    ],
)
def test_what_is_not_understood(spec: Any, text: str) -> None:
    with pytest.raises(TargetError, match=text):
        Target(spec)


#: Sizes of caches stand in a target only where somebody has given them.
CACHES = [name for name in OPTIONS if "cache" in name]
FILLED_IN = [name for name in OPTIONS if name not in CACHES]


@pytest.mark.parametrize("name", FILLED_IN)
def test_every_option_is_an_attribute(name: str) -> None:
    assert getattr(Target(), name) == Target().options[name]


@pytest.mark.parametrize("name", CACHES)
def test_caches_are_attributes_where_they_are_given(name: str) -> None:
    assert getattr(Target("llvm", **{name: 4096}), name) == 4096
    assert name not in Target("llvm").options


def test_other_attributes_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="Target has no attribute 'speed'"):
        Target().speed  # noqa: B018


# ------------------------------------------------------------------ CPUs

on_x86 = pytest.mark.skipif("+sse2" not in FEATURES, reason="names and widths of x86-64")


@on_x86
@pytest.mark.parametrize(
    ("spec", "width"),
    [
        ("-mcpu=x86-64", 16),
        ("-mcpu=x86-64-v3", 32),
        ("-mcpu=haswell", 32),
        ("-mcpu=skylake-avx512", 64),
        ("-mcpu=x86-64-v4 -mattr=-avx512f", 32),
        ("-mcpu=x86-64 -mattr=+avx2", 32),
        ("-mcpu=skylake-avx512 -prefer-vector-width=256", 32),
        ("-mcpu=haswell -prefer-vector-width=512", 32),
        ("-mcpu=haswell -prefer-vector-width=128", 16),
    ],
)
def test_the_width_of_vectors_is_that_of_the_cpu(spec: str, width: int) -> None:
    assert Target(f"llvm {spec}").vector_bytes == width


def test_the_width_of_the_host() -> None:
    assert Target().vector_bytes in (16, 32, 64)


@on_x86
@pytest.mark.parametrize(
    ("cpu", "near"),
    [("zen5", "znver5"), ("skylake-avx51", "skylake-avx512"), ("hasswell", "haswell")],
)
def test_unknown_cpus_are_named_with_near_ones(cpu: str, near: str) -> None:
    """LLVM itself would end the process when it meets such a name."""
    with pytest.raises(TargetError, match=rf"unknown CPU '{cpu}' \(did you mean '{near}'\?\)"):
        Target(f"llvm -mcpu={cpu}")
    with pytest.raises(TargetError, match=rf"leave mcpu out for this machine's \({HOST}\)"):
        Target(f"llvm -mcpu={cpu}")


@on_x86
def test_a_cpu_without_64_bits_is_refused() -> None:
    with pytest.raises(TargetError, match=r"LLVM makes no code for mcpu=pentium4 .*64-bit code"):
        Target("llvm -mcpu=pentium4")


@on_x86
def test_a_cpu_that_only_llvm_knows_is_accepted() -> None:
    assert "amdfam10" not in COMMON_CPUS["x86_64"]
    assert Target("llvm -mcpu=amdfam10").vector_bytes == 16


def test_unknown_features_are_refused_with_near_ones() -> None:
    with pytest.raises(TargetError, match=r"mattr: LLVM knows no feature 'warp9' of "):
        Target("llvm -mattr=+warp9")
    with pytest.raises(TargetError, match=r"no feature 'fmaa' .*did you mean 'fma'\?"):
        Target("llvm -mcpu=haswell -mattr=+avx2,-fmaa")


@pytest.mark.parametrize("spec", ["-mcpu=help", "-mattr=+help"])
def test_llvms_help_is_no_cpu(spec: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TargetError, match="'help'"):
        Target(f"llvm {spec}")
    assert "Available CPUs" not in capfd.readouterr().err


@on_x86
def test_common_names_are_known_to_this_llvm() -> None:
    """They are accepted without a question, so a wrong one would end the process later."""
    code = (
        "import sys, llvmlite.binding as llvm\n"
        "llvm.initialize_native_target(); llvm.initialize_native_asmprinter()\n"
        "for cpu in sys.argv[1:]:\n"
        "    m = llvm.Target.from_default_triple().create_target_machine(cpu=cpu)\n"
        "    m.emit_assembly(llvm.parse_assembly('define void @f() { ret void }'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMON_CPUS["x86_64"], *ALIASES],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------ canonical form

SPECS = [
    "llvm",
    "llvm -num-threads=2",
    "llvm -mattr=",
    "llvm -num-threads=1 -fastmath=true -loop-vectorize=true -loop-unroll=true",
    "llvm -prefer-vector-width=256",
]


@pytest.mark.parametrize("spec", SPECS)
def test_canonical_round_trip(spec: str) -> None:
    t = Target(spec)
    data = json.loads(json.dumps(t.canonical))
    assert Target.from_canonical(data) == t
    assert set(data) == {"kind", *FILLED_IN}
    assert list(data)[1:] == sorted(FILLED_IN)
    assert Target.from_canonical(data).canonical == data


@pytest.mark.parametrize("spec", SPECS)
def test_text_round_trip(spec: str) -> None:
    t = Target(spec)
    assert Target(str(t)) == t
    assert repr(t) == f"Target({str(t)!r})"
    assert eval(repr(t), {"Target": Target}) == t


@on_x86
def test_text_says_only_what_is_not_the_default() -> None:
    assert str(Target("llvm -num-threads=0 -fastmath=false")) == "llvm"
    assert str(Target("llvm -mcpu=haswell")) in ("llvm -mcpu=haswell", "llvm")
    assert Target(str(Target("llvm -mcpu=haswell -mattr=+avx512f"))) == Target(
        "llvm -mcpu=haswell -mattr=+avx512f"
    )


def test_equality_and_hash() -> None:
    a, b, c = Target("llvm -num-threads=2"), Target({"num_threads": 2}), Target("llvm")
    assert a == b
    assert hash(a) == hash(b)
    assert a != c
    assert a != "llvm -num-threads=2"
    assert len({a, b, c}) == 2


# ------------------------------------------------------------------ kinds


#: Written by the first version; records hold such forms.
OLD = {
    "kind": "llvm",
    "fastmath": False,
    "loop_unroll": False,
    "loop_vectorize": False,
    "mattr": FEATURES,
    "mcpu": HOST,
    "num_threads": 2,
    "prefer_vector_width": 0,
}


def test_canonical_forms_of_old_records_stay() -> None:
    assert Target.from_canonical(dict(OLD)).canonical == OLD
    assert json.dumps(Target("llvm -num-threads=2").canonical) == json.dumps(OLD)


def test_the_options_of_c() -> None:
    t = Target("c -cc=clang -march=native -num-threads=2 -opt-level=3 -cflags='-g -mtune=intel'")
    assert (t.kind, t.cc, t.mcpu, t.num_threads) == ("c", "clang", HOST, 2)
    assert (t.opt_level, t.cflags, t.fastmath) == (3, "-g -mtune=intel", False)
    assert t.vector_bytes == Target("llvm").vector_bytes
    assert Target(str(t)) == t
    assert Target.from_canonical(json.loads(json.dumps(t.canonical))) == t
    assert str(t).startswith("c -num-threads=2 -opt-level=3 -cflags='-g -mtune=intel'")


def test_the_compiler_is_found_when_the_target_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Target("c").cc == "gcc"
    clang = tmp_path / "clang"
    clang.write_text("")
    clang.chmod(0o755)
    assert Target("c").cc == "clang"


def test_interp_has_no_options() -> None:
    t = Target("interp")
    assert (t.canonical, str(t), t.vector_bytes) == ({"kind": "interp"}, "interp", 16)
    with pytest.raises(AttributeError, match="Target has no attribute 'mcpu'"):
        t.mcpu  # noqa: B018


@pytest.mark.parametrize("kind", ["llvm", "c", "interp"])
def test_every_kind_can_be_in_force(kind: str) -> None:
    with Target(kind) as t:
        assert Target.current() is t
    assert Target.current().kind == "llvm"
    assert pickle.loads(pickle.dumps(KINDS[kind])) == KINDS[kind]


def test_a_host_keys_and_a_model() -> None:
    t = Target("llvm -keys=arm_cpu,cpu -model=pi4", host="c -num-threads=1")
    assert (t.keys, t.model) == (("arm_cpu", "cpu"), "pi4")
    assert t.host == Target("c -num-threads=1")
    assert Target({"kind": "llvm", "keys": ["arm_cpu", "cpu"], "model": "pi4", "host": t.host}) == t
    assert Target(str(t)) == t
    data = json.loads(json.dumps(t.canonical))
    assert Target.from_canonical(data) == t
    assert hash(Target.from_canonical(data)) == hash(t)
    assert t.with_host(None) == Target("llvm -keys=arm_cpu,cpu -model=pi4")
    assert t.with_host("llvm").host == Target("llvm")


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_a_device_of_a_cpu_is_its_first_key(kind: str) -> None:
    t = Target(f"{kind} -device=arm_cpu -model=pi4")
    assert t == Target(f"{kind} -model=pi4 -keys=arm_cpu,cpu")
    assert t == Target(f"{kind} -keys=arm_cpu,cpu -device=arm_cpu -model=pi4")
    assert Target(str(t)) == t == Target.from_canonical(t.canonical)


def test_defaults_leave_no_trace() -> None:
    t = Target("llvm")
    assert (t.host, t.keys, t.model) == (None, ("cpu",), "unknown")
    assert Target("llvm -keys=cpu -model=unknown") == t
    assert t.attrs == t.options
    assert t.attrs is not t.options


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("inter", r"unknown target 'inter' \(did you mean 'interp'\?\); known: llvm, c, interp"),
        ("gcc", r"unknown target 'gcc' \(did you mean 'c'\?\)"),
        ("c -fastmth=true", r"unknown target option 'fastmth' of 'c' \(did you mean 'fastmath'"),
        ("c -loop-unroll=true", "unknown target option 'loop_unroll' of 'c'"),
        ("interp -num-threads=2", "unknown target option 'num_threads' of 'interp'"),
        ("c -opt-level=4", "target option opt_level: expected 0, 1, 2 or 3, got '4'"),
        ("c -cc=", "target option cc: expected text, got ''"),
        ("llvm -keys=a,,b", "target option keys: expected words with commas, got 'a,,b'"),
        ({"kind": "llvm", "host": "interp"}, "a host is a target that makes code for a CPU"),
        ({"kind": "llvm", "host": "cuda"}, "a host is a target that makes code for a CPU"),
        ({"kind": ["llvm"]}, r"unknown target \['llvm'\]"),
    ],
)
def test_what_the_kinds_do_not_understand(spec: Any, text: str) -> None:
    with pytest.raises(TargetError, match=text):
        Target(spec)


@pytest.mark.parametrize(
    ("cpu", "features", "lanes"),
    [
        ("x86-64", "", 0),
        ("x86-64-v4", "", 0),
        ("icelake-server", "", 16),
        ("znver4", "", 16),
        ("alderlake", "", 8),
        ("x86-64-v3", "+avxvnni", 8),
        ("x86-64-v4", "+avx512vnni", 16),
        ("x86-64-v3", "+avx512vnni", 0),
        ("x86-64-v3", "+avx512vnni,+avx512vl", 16),
        ("icelake-server", "-avx512vnni", 0),
        ("icelake-server", "-avx512f", 0),
        ("alderlake", "-avxvnni", 0),
        ("alderlake", "-avx2", 0),
        ("generic", "+neon", 0),
    ],
)
def test_lanes_of_dot_products(cpu: str, features: str, lanes: int) -> None:
    assert dot_lanes(cpu, features) == lanes


@pytest.mark.parametrize(
    ("cpu", "features", "lanes"),
    [
        ("x86-64", "", 0),
        ("x86-64-v3", "", 8),
        ("x86-64-v3", "-avx2", 0),
        ("znver3", "", 8),
        ("skylake-avx512", "", 16),
        ("skylake-avx512", "-avx512vl", 8),
        ("skylake-avx512", "-avx512bw", 8),
        ("icelake-server", "", 16),
    ],
)
def test_lanes_of_products_of_pairs(cpu: str, features: str, lanes: int) -> None:
    assert pair_lanes(cpu, features) == lanes


@pytest.mark.parametrize(
    ("cpu", "by_pairs", "lanes"),
    [
        ("znver4", False, 16),
        ("znver3", True, 8),
        ("skylake-avx512", True, 16),
        ("x86-64", False, 0),
    ],
)
def test_dots_of_bytes_are_two_products_of_pairs_without_vnni(
    cpu: str, by_pairs: bool, lanes: int
) -> None:
    target = Target(f"llvm -mcpu={cpu}")
    assert (target.has_dots_by_pairs, target.dot_lanes["int32"]) == (by_pairs, lanes)
    assert not Target("interp").has_dots_by_pairs


@pytest.mark.parametrize(
    ("cpu", "features", "lanes"),
    [
        ("x86-64-v4", "", 0),
        ("icelake-server", "", 0),
        ("cooperlake", "", 16),
        ("znver4", "", 16),
        ("znver4", "-avx512bf16", 0),
        ("sapphirerapids", "-avx512vl", 0),
        ("x86-64-v4", "+avx512bf16", 16),
        ("x86-64-v3", "+avx512bf16", 0),
    ],
)
def test_lanes_of_dot_products_of_bfloat16(cpu: str, features: str, lanes: int) -> None:
    assert bf16_dot_lanes(cpu, features) == lanes


def test_lanes_fit_the_vectors_of_a_target() -> None:
    assert Target("llvm -mcpu=znver4").dot_lanes == {"int32": 16, "float32": 16}
    narrow = Target("llvm -mcpu=znver4 -prefer-vector-width=256")
    assert narrow.dot_lanes == {"int32": 8, "float32": 8}
    assert Target("interp").dot_lanes == {"int32": 0, "float32": 0}


def test_a_string_as_tvm_prints_it() -> None:
    target = Target("llvm -keys=cpu -link-params=0 -mcpu=core-avx2")
    assert target == Target("llvm -mcpu=core-avx2")
    with pytest.raises(TargetError, match="link_params: expected 0, false or False, got '1'"):
        Target("llvm -link-params=1")


def test_a_triple_of_this_machine_says_nothing_more() -> None:
    machine = platform.machine()
    for kind in ("llvm", "c"):
        target = Target(f"{kind} -mtriple={machine}-unknown-linux-gnu -num-threads=1")
        assert target == Target(f"{kind} -num-threads=1")
        assert "mtriple" not in target.canonical
    other = "aarch64" if machine == "x86_64" else "x86_64"
    text = f"mtriple: code is made for this machine's architecture, {machine}, not for '{other}-li"
    with pytest.raises(TargetError, match=text):
        Target(f"llvm -mtriple={other}-linux-gnu")


@pytest.mark.parametrize(("machine", "triple"), [("AMD64", "x86_64-pc"), ("arm64", "aarch64")])
def test_architectures_have_several_names(
    machine: str, triple: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    check_triple(triple)
    with pytest.raises(TargetError, match="tune and build on such a machine"):
        check_triple("riscv64-linux-gnu")
