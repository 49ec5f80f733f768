"""Runs the commands of ``docs/command-line.md`` anew and puts what they print below them.

``python docs/outputs.py`` runs, in a temporary folder and in the order of the page, each block of
commands that a block of output follows. `loopwright` is the one beside the Python that runs this.
Times are those of this machine: let nothing else run meanwhile.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).with_name("command-line.md")
#: A block of commands, and the block of output below it.
BLOCKS = re.compile(
    r"```sh\n(?P<commands>(?:(?!```).)*)```\n\n```text\n(?P<output>(?:(?!```).)*)```", re.DOTALL
)
#: Files that the commands read.
FILES = {"network.txt": "matmul M=64 N=64 K=64\n4 dense M=1 N=100 K=64\n"}
COLUMNS = 110


def printed(commands: str, folder: str) -> str:
    """What commands print to a pipe, one below the other, with an empty line between two."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS)}
    env.pop("CI", None)
    outputs = []
    for command in commands.splitlines():
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}")
        outputs.append(done.stdout.rstrip().replace(f"{folder}/", ""))
    return "\n\n".join(filter(None, outputs)) + "\n"


def main() -> None:
    """Write the page anew."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text)

        def anew(block: re.Match[str]) -> str:
            output = printed(block["commands"], folder)
            if "```" in output:
                sys.exit(f"this output would end its block:\n{output}")
            return f"```sh\n{block['commands']}```\n\n```text\n{output}```"

        PAGE.write_text(BLOCKS.sub(anew, PAGE.read_text()))


if __name__ == "__main__":
    main()
