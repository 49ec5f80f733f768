"""The option ``--device`` of the verbs that run kernels."""

from __future__ import annotations

import click

#: Names devices; see `loopwright.measure.LocalRunner`.
device_option = click.option(
    "--device",
    metavar="NAMES",
    help="The device that kernels run on, such as opencl:0. Where many are measured, several equal "
    "ones with commas share them [default: the first of the target's kind]. `loopwright devices` "
    "lists them.",
)
