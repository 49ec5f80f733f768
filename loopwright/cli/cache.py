"""``loopwright cache``: what is kept on disk between processes."""

from __future__ import annotations

import json

import click

from loopwright.cli.options import flag, json_option, verb


@verb("cache")
def cache_command(
    *,
    as_json: bool = json_option(),
    clear: bool = flag("--clear", "Remove all of it; it is made again when needed."),
) -> None:
    """Show what is kept on disk, so that no later process makes it again: built kernels, the
    schedules that the analytical model chose, and programs of devices. LOOPWRIGHT_CACHE names the
    folder, or is 0 for none. Each kind has a limit, beyond which what was used least lately goes.
    """
    from loopwright import env
    from loopwright.codegen import KernelCache
    from loopwright.runtime import ProgramCache
    from loopwright.space import KeptDefaults

    folder = env.cache_folder()
    stores = (
        (KernelCache(folder).store, KeptDefaults(folder).store, ProgramCache(folder).store)
        if folder is not None
        else ()
    )
    kinds = []
    for store in filter(None, stores):
        if clear:
            store.clear()
        kinds.append((store, store.sizes()))
    if as_json:
        facts = [
            {"kind": s.what, "entries": len(sizes), "bytes": sum(sizes), "limit": s.limit}
            for s, sizes in kinds
        ]
        click.echo(json.dumps({"folder": folder and str(folder), "kinds": facts}))
        return
    click.echo(folder or "nothing is kept on disk, as LOOPWRIGHT_CACHE says")
    for store, sizes in kinds:
        used, limit = sum(sizes) / 2**20, store.limit >> 20
        click.echo(f"  {store.what}: {len(sizes)}, {used:.1f} of {limit} MiB")
