"""Text of logs and files made safe for a screen: it may hold control sequences of terminals."""

from __future__ import annotations

import click

from loopwright.presenting import harmless

__all__ = ["echo", "harmless", "harmless_lines"]


def harmless_lines(text: str) -> str:
    return "\n".join(map(harmless, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Print lines that may hold text of a log or file."""
    click.echo(harmless_lines(text), err=err)
