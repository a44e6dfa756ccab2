"""Runs begun with an earlier version can be resumed where they ask for what they asked for then."""

from __future__ import annotations

from accord.config import config_hash, from_dict


def test_runs_of_0_3_have_the_hash_they_had() -> None:
    assert config_hash(from_dict({})) == "9e452f710340e0e1dcf0685e016561fa07180fb590c860d84473d55fad16019d"
    other = {"algorithm": {"name": "fedbr"}, "evaluate": {"drift": True}, "partition": {"alpha": 0.1}}
    assert config_hash(from_dict(other)) == "2485272cff3837aeaf099e68002e5d97dcf0bd7d5a30446c39c33301014ccc74"
