"""A new run's folder: there with its configuration, so that it can be resumed, or not there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from accord.config import RunConfig, load_config, to_toml
from accord.engine.files import TEMPORARY, only_here, write_atomic
from accord.engine.identity import FILE, Identity, check_plugins, keep
from accord.errors import CheckpointError, ConfigError, InUseError, RunError

CONFIG = "config.toml"  # written last: a folder with it holds a run


def new_folder(config: RunConfig, identity: Identity) -> Path:
    """`out/name`, or a name made of algorithm, data and seed with a number when it is taken, and what a run needs."""
    out = Path(config.out)
    base = config.name or f"{config.algorithm.name}-{plain_name(identity['data']['name'])}-s{config.seed}"
    candidates = [out / base] if config.name else [out / base, *(out / f"{base}-{n}" for n in range(2, 10000))]
    for folder in candidates:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not abandoned(folder):
                continue
        except OSError as error:
            raise RunError(
                f"cannot make the run's folder {folder}: {error.strerror or error}. Choose another --out."
            ) from error
        if _filled(folder, config, identity):
            return folder
    raise ConfigError(
        f"the run folder {candidates[0]} exists already: choose another name, or go on with it by "
        f"`accord resume {candidates[0]}`"
    )


def read_config(folder: Path) -> RunConfig:
    """The configuration of a run, which may need plugins to be read."""
    if not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder} holds no run: there is no {CONFIG} in it")
    check_plugins(folder)
    return load_config(folder / CONFIG)


def plain_name(name: str) -> str:
    """A data set's name as a part of a folder's name."""
    return re.sub(r"[^\w.+=,@-]+", "_", name)[:80] or "data"


def abandoned(folder: Path) -> bool:
    """Whether it holds nothing but what a run that never began has left: no configuration, and nobody else's files."""
    try:
        return folder.is_dir() and not folder.is_symlink() and all(map(_is_beginning, folder.iterdir()))
    except OSError:
        return False


def _is_beginning(path: Path) -> bool:
    return path.name in (".lock", FILE, "federation.json") or TEMPORARY.fullmatch(path.name) is not None


def begin_in(folder: Path, config: RunConfig, identity: Identity, more: Mapping[str, str]) -> None:
    """Begin a run in this very folder, with `more` files by name; ConfigError if there is something in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the run's folder {folder}: {error.strerror or error}. Choose another.") from error
    if not abandoned(folder) or not _filled(folder, config, identity, more):
        raise ConfigError(f"the folder {folder} holds something else than a run: choose another")


def _filled(folder: Path, config: RunConfig, identity: Identity, more: Mapping[str, str] | None = None) -> bool:
    """Write what a run begins with; False if somebody else was faster. What fails leaves nothing behind."""
    more = more or {}
    try:
        with only_here(folder):
            if (folder / CONFIG).exists():
                return False
            try:
                keep(folder, identity)
                for name, text in more.items():
                    write_atomic(folder / name, text)
                write_atomic(folder / CONFIG, to_toml(config))
            except BaseException:
                with suppress(OSError):
                    for name in (FILE, *more, CONFIG, ".lock"):
                        (folder / name).unlink(missing_ok=True)
                raise
    except InUseError:
        return False
    except BaseException:
        with suppress(OSError):
            folder.rmdir()  # unless there is something in it
        raise
    return True
