"""Settings from the environment, and the machine's description."""

from __future__ import annotations

import json

import pytest

from loopwright import env
from loopwright.errors import UsageError


def test_defaults() -> None:
    found = env.Settings.from_environ({})
    assert found == env.Settings()
    assert found.num_threads is None
    assert found.workspace_limit is None
    assert found.pool == "auto"
    assert env.Settings.from_environ({"LOOPWRIGHT_NUM_THREADS": " "}) == found


def test_values_are_read() -> None:
    found = env.Settings.from_environ(
        {
            "LOOPWRIGHT_NUM_THREADS": "3",
            "LOOPWRIGHT_SPIN": "0",
            "LOOPWRIGHT_WORKSPACE_LIMIT": "2GiB",
            "LOOPWRIGHT_POOL": "pthread",
        }
    )
    assert found == env.Settings(3, 0, 2 << 30, "pthread")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NUM_THREADS", "0", "whole number from 1 to 1023"),
        ("NUM_THREADS", "two", "LOOPWRIGHT_NUM_THREADS='two'"),
        ("NUM_THREADS", "99999", "whole number"),
        ("SPIN", "-1", "whole number from 0"),
        ("WORKSPACE_LIMIT", "lots", "is not a size"),
        ("POOL", "tbb", "is not one of auto, futex, pthread"),
    ],
)
def test_bad_values_name_the_variable(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        env.Settings.from_environ({f"LOOPWRIGHT_{name}": value})


def test_machine_is_json_and_stable() -> None:
    facts = env.machine()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["numpy"][0].isdigit()
    assert facts["llvmlite"][0].isdigit()
    assert env.version("no-such-distribution") == "not installed"
