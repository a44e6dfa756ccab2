"""Shut a site out: its key is good for nothing from then on, whoever has it.

The SuperLink never takes a key again that it has once shut out, so a site that comes back makes a new one. Keys that
were shut out are kept in the folder: a SuperLink that did not run at that time hears of them when it starts.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from accord.errors import ConfigError
from accord.federation import superlink
from accord.federation.certificates import OPEN, private_folder, read_public_key, write_new
from accord.federation.control import unregister
from accord.federation.folder import Folder, alone, read_state, write_state
from accord.federation.processes import end
from accord.federation.up import node


def expel(folder: Folder, site: str) -> bool:
    """Shut a site out, and end its node if it runs here; whether the SuperLink runs, and has done so already."""
    folder.site(site)  # a name that can be a file's
    kept = folder.admitted / f"{site}.pub"
    if not kept.is_file():
        known = ", ".join(sorted(path.stem for path in folder.admitted.glob("*.pub"))) or "nobody"
        raise ConfigError(f"no site {site!r} was let in to {folder.path}; let in: {known}")
    with alone(folder):
        key = read_public_key(kept)
        private_folder(folder.expelled)
        out = folder.expelled / f"{site}.{hashlib.sha256(key).hexdigest()[:16]}.pub"
        if not out.exists():
            write_new(out, key + b"\n", OPEN)
        state = read_state(folder)
        runs = state is not None and superlink.answers(state, folder.certificates.authority)
        if runs:
            unregister(folder.home, [out])
        kept.unlink()  # last: a command that was stopped before is simply given again
        if state is not None:
            theirs = [process for process in state.processes if process.name == node(site)]
            end(theirs)
            write_state(folder, replace(state, processes=tuple(p for p in state.processes if p not in theirs)))
    return runs
