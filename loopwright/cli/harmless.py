"""Text of logs and files on a screen: it may hold what a terminal would obey."""

from __future__ import annotations

import click


def harmless(text: str) -> str:
    r"""One line of text in which everything that does not print is written as its escape.

    Control characters (of a terminal, line breaks, ``\r``), marks that change the direction of
    writing, and lone surrogates, which no stream can encode.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def harmless_lines(text: str) -> str:
    """Several lines of text, each of them `harmless`."""
    return "\n".join(map(harmless, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Print lines that may hold text of a log or file; to standard error with ``err``."""
    click.echo(harmless_lines(text), err=err)
