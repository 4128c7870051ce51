"""Arrays inside a page: deflated bytes in base64, one <script> element each, read back by
assets/data.js.

The bytes of an array are stored in planes, all first bytes, then all second bytes, and so on: they
deflate better this way.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from torch import Tensor

from gromap._plan import Plan

SPARSE_ENTRIES = 64  # entries of each row and column of a plan that has no factors


def block(name: str, array: np.ndarray) -> str:
    """The element that holds an array.

    >>> block("a", np.arange(3, dtype=np.uint8))[:72]
    '<script type="application/octet-stream" id="block-a" data-type="uint8">e'
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    planes = flat.astype(flat.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, flat.itemsize).T
    text = base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")
    return f'<script type="application/octet-stream" id="block-{name}" data-type="{flat.dtype.name}">{text}</script>\n'


def probe_blocks(plan: Plan) -> dict[str, np.ndarray]:
    """The arrays from which the page computes any row or column: q, k, u, v of π_ij =
    exp(q_i·k_j + u_i + v_j), in nats.

    A plan without factors gives the largest entries of each row and column, as shares of its mass,
    and their indices.
    """
    factors = plan.score.tensors()
    if "q" in factors:
        return {name: _float(z) for name, z in (*factors.items(), ("u", plan.u), ("v", plan.v))}
    blocks = {}
    for name, side, mass in zip(("row", "column"), (plan, plan.T), plan.marginals, strict=True):
        entries = side.sparse(min(SPARSE_ENTRIES, side.shape[1]))
        shares = entries.data.reshape(len(mass), -1) / np.where(mass > 0, mass, 1)[:, None]
        blocks[f"{name}-shares"] = shares.astype(np.float32)
        blocks[f"{name}-places"] = entries.indices.astype(np.int32)
    return blocks


def _float(x: Tensor) -> np.ndarray:
    return x.detach().cpu().float().numpy()
