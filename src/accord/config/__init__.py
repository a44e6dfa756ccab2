"""The configuration of a run: TOML or `key=value` in, checked frozen dataclasses out."""

from __future__ import annotations

from accord.config.load import config_hash, from_dict, load_config, to_dict, to_toml
from accord.config.tree import (
    AlgorithmConfig,
    AttackConfig,
    CheckpointConfig,
    ClientsConfig,
    CompressConfig,
    DataConfig,
    EvaluateConfig,
    FederationConfig,
    LocalConfig,
    LogConfig,
    ModelConfig,
    PartitionConfig,
    PrivacyConfig,
    RunConfig,
    TransformConfig,
)

__all__ = [
    "AlgorithmConfig",
    "AttackConfig",
    "CheckpointConfig",
    "ClientsConfig",
    "CompressConfig",
    "DataConfig",
    "EvaluateConfig",
    "FederationConfig",
    "LocalConfig",
    "LogConfig",
    "ModelConfig",
    "PartitionConfig",
    "PrivacyConfig",
    "RunConfig",
    "TransformConfig",
    "config_hash",
    "from_dict",
    "load_config",
    "to_dict",
    "to_toml",
]
