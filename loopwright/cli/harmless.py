"""Text of logs and files on a screen: it may hold what a terminal would obey."""

from __future__ import annotations

import click

from loopwright.presenting import harmless

__all__ = ["echo", "harmless", "harmless_lines"]


def harmless_lines(text: str) -> str:
    """Several lines of text, each of them `harmless`."""
    return "\n".join(map(harmless, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Print lines that may hold text of a log or file; to standard error with ``err``."""
    click.echo(harmless_lines(text), err=err)
