"""Carries out rounds: executors, client memory, evaluation, checkpoints."""
