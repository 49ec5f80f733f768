"""How many lines of a script for TVM have to change before it runs here.

``python -m tests.migration.changed_lines`` prints a table.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

HERE = Path(__file__).parent
_NO_SCRIPTS = {"changed_lines", "__init__"}
#: The scripts by name, in the order of the alphabet.
SCRIPTS = sorted(
    path.stem
    for path in HERE.glob("*.py")
    if path.stem not in _NO_SCRIPTS and not path.stem.startswith("test_")
    if not path.stem.endswith("_ported")
)
_IMPORT = re.compile(r"(import|from) ")
#: The replacements of import lines; their right sides hold names of loopwright only.
_IMPORTS = (
    (re.compile(r"^import tvm\.testing$", re.MULTILINE), "import loopwright.testing"),
    (re.compile(r"^import tvm$", re.MULTILINE), "import loopwright as tvm"),
    (re.compile(r"^from tvm import (.*)$", re.MULTILINE), r"from loopwright import \1"),
    (re.compile(r"^from tvm\.(\S+) import (.*)$", re.MULTILINE), r"from loopwright.\1 import \2"),
)


def imports_replaced(script: Path) -> str:
    """The text of a script with loopwright's import lines in the place of TVM's."""
    text = script.read_text(encoding="utf-8")
    for pattern, ours in _IMPORTS:
        text = pattern.sub(ours, text)
    return text


def changed_lines(name: str) -> int:
    """Lines that differ beside imports, the docstring and blank ones.

    Where lines took the place of others, the more numerous of the two are counted.
    """
    ported = HERE / f"{name}_ported.py"
    if not ported.exists():
        return 0
    before, after = _code(HERE / f"{name}.py"), _code(ported)
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(
        max(old_end - old, new_end - new)
        for tag, old, old_end, new, new_end in blocks
        if tag != "equal"
    )


def _code(script: Path) -> list[str]:
    """The lines of a script without its docstring, its imports and blank lines."""
    _, _, body = script.read_text(encoding="utf-8").partition('"""\n')
    return [line for line in body.splitlines() if line.strip() and not _IMPORT.match(line)]


if __name__ == "__main__":
    for script in SCRIPTS:
        print(f"{script:<24} {changed_lines(script):>3} changed lines")
