"""What a solve takes at most, about: measured peaks stay below (tests/test_memory.py).

dense     cost and kernel matrices, and so many N x M arrays
linear    features of both sides, lifted, in both precisions
before    what finding the embeddings takes, one after the other, and then the search
"""

from __future__ import annotations

from math import prod

from gromap._pair import Pair
from gromap._space import Space
from gromap.geometry.eigen import working_memory
from gromap.geometry.embedding import KernelPCA

# of tiles, of small things, and of holes: the allocator of a CPU keeps pieces of 32 MiB and less
FIXED_BYTES = {"cpu": 300 << 20, "cuda": 1 << 30}
SEARCH_CELLS, SEARCH_MAPS = 400, 400  # axes that the search knows of, at most, and float64 copies of Γ in these
FINAL_MAPS = 16  # copies of Γ in all axes
PART_CELLS = 150  # points of a side in the search for parts
PART_PLANS = {"cpu": 1600, "cuda": 6400}  # float64 plans between these
PATIENT, SIGNED, REFINING = 10, 7, 2  # sweeps of eigenvectors: to 1e-9, to 1e-6, from a good guess


def dense_memory(pair: Pair, plans: int, itemsize: int | None = None) -> int:
    """Bytes of a solver that holds matrices, and so many (N, M) arrays."""
    (n, m), size = pair.shape, itemsize or pair.itemsize
    costs, arrays = 2 * size * (n * n + m * m), size * plans * n * m
    return costs + max(arrays, _before(pair, signed=False)) + FIXED_BYTES[pair.device.type]


def linear_memory(pair: Pair, signed: bool = False) -> int:
    """Bytes of a solver that holds features alone.  signed: those of costs as they are."""
    kept = 0
    for space in (pair.x, pair.y):
        axes = space.likely_axes
        kept += len(space) * (24 * (axes + 8) + 2 * pair.itemsize * axes + 256 * -(-3 * (axes + 1) // 64))
    if pair.fused is not None:
        kept += 32 * (pair.fused.left.numel() + pair.fused.right.numel())
    return kept + _before(pair, signed) + FIXED_BYTES[pair.device.type]


def _before(pair: Pair, signed: bool) -> int:
    parts = 8 * PART_PLANS[pair.device.type] * prod(min(n, PART_CELLS) for n in pair.shape) if pair.relaxed else 0
    axes = [space.likely_axes for space in (pair.x, pair.y)]
    search = 8 * (SEARCH_MAPS * prod(min(k, SEARCH_CELLS) for k in axes) + FINAL_MAPS * prod(axes))
    return max(search + parts, *(_embedding(space, signed) for space in (pair.x, pair.y)))


def _embedding(space: Space, signed: bool) -> int:
    n, axes = len(space), space.likely_axes
    if space.is_embedded and not signed:
        return 0
    if space.cost.degree == 2 and not signed:
        return 32 * space.measure.points.numel()
    if signed or isinstance(space.method, KernelPCA):
        return working_memory(n, axes, SIGNED if signed else PATIENT)
    landmarks = min(n, max(space.method.landmarks, axes))
    return max(working_memory(landmarks, min(landmarks, axes), PATIENT), working_memory(n, axes, REFINING))
