"""The packages that optional parts need, and the command that installs them here."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def install(extra: str) -> str:
    """The command that installs what an extra of this package brings, such as ``"onnx"``.

    It names the packages themselves: no index need have loopwright, and its sources may be gone.
    """
    pip = shutil.which("pip")
    beside = pip is not None and Path(pip).parent == Path(sys.executable).parent
    command = "pip" if beside else f"{shlex.quote(sys.executable)} -m pip"
    return f"{command} install {' '.join(map(shlex.quote, _packages(extra)))}"


def _packages(extra: str) -> list[str]:
    from importlib import metadata

    try:
        requirements = metadata.requires("loopwright") or []
    except metadata.PackageNotFoundError:
        return _packages_of_sources(extra)
    parts = (text.replace("'", '"').partition(";") for text in requirements)
    return [name.strip() for name, _, marker in parts if f'extra == "{extra}"' in marker]


def _packages_of_sources(extra: str) -> list[str]:
    """The packages by the file beside the sources, for a copy that is only on the path."""
    import tomllib

    try:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        packages: list[str] = tomllib.loads(text)["project"]["optional-dependencies"][extra]
    except (OSError, KeyError, ValueError):
        return [f"loopwright[{extra}]"]
    return packages
