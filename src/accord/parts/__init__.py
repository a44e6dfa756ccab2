"""Ideas used by two methods or more."""

from accord.parts.losses import CrossEntropy, Proximal

__all__ = ["CrossEntropy", "Proximal"]
