"""The option ``--force`` of the verbs that write a file named by the user."""

from __future__ import annotations

import click

#: Files of the kind that is written are replaced without it; see `loopwright.files`.
force_option = click.option(
    "--force", is_flag=True, help="Replace a file that is there, whatever it is."
)
