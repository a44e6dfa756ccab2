"""What methods put around a network or into it, and how it is put around the same network again."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from accord.models.around.fusion import Fused
from accord.models.around.heads import ProjectedHead, UnitHead, projected_head, unit_head
from accord.models.around.relations import Related

# By kind: a network and the settings `accord.core.whole.around` gave, to a module with places for all values.
AROUND: dict[str, Callable[..., nn.Module]] = {
    Fused.kind: Fused.blank,
    Related.kind: Related.blank,
    UnitHead.kind: unit_head,
    ProjectedHead.kind: projected_head,
}
