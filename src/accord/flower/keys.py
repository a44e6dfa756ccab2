"""Which key each site's node is known by: a folder of SITE.pub, where the server's operator has one.

Flower lets in nodes with registered keys, and any of them could call itself by another site's name. With this folder a
name belongs to a key from the start; without it, to the node that comes by it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from accord.errors import ConfigError


@dataclass(frozen=True)
class Keys:
    """Public keys by site, as Flower tells them; None: names are not bound to keys."""

    of: Mapping[str, bytes] | None = field(default=None)

    @classmethod
    def read(cls, folder: str) -> Keys:
        """All SITE.pub in a folder; nothing is bound where none is named."""
        if not folder:
            return cls()
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise ConfigError(f"federation.keys = {folder!r}: there is no such folder")
        return cls({path.stem: public_pem(path) for path in sorted(place.glob("*.pub"))})

    def refusal(self, site: str, key: bytes) -> str:
        """Why a node with this key may not be that site; empty: it may."""
        if self.of is None:
            return ""
        if site not in self.of:
            return f"no key was let in for a site {site!r}"
        return "" if self.of[site] == key else f"it calls itself {site!r}, and its key is not that site's"


def public_pem(path: Path) -> bytes:
    """The key in the form in which Flower keeps it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} holds no public key: {error}") from error
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
