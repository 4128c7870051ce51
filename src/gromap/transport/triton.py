"""The reductions as fused streaming kernels: CUDA, float32, low-rank scores, O(N + M) memory.

A program owns a block of rows I and walks over blocks of columns J:

    s = q_I k_Jᵀ        fp16 tensor cores, fp32 sums: q = hi + lo and k = hi + lo in fp16, and one
                        product of [hi, hi, lo] with [hi, lo, hi] is right to 2⁻²² |q| |k|
    p = exp2(s + u + v) in bits
    then the sums of p, or p W_J, or maxima, in registers

Features come balanced from the caller, so that both halves fit fp16; where they do
not, and on cards without tensor cores, products are in fp32. Underflow is flushed to zero by the
hardware. Where `active` lists the tiles that matter (truncation.py), a program walks along its
list. The kernels themselves are in kernels.py.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
import triton  # pyright: ignore[reportMissingTypeStubs] - Triton has none
from torch import Tensor
from triton.runtime.errors import OutOfResources  # pyright: ignore[reportMissingTypeStubs] - Triton has none

from gromap.transport import kernels as written
from gromap.transport.lowrank import LowRank
from gromap.transport.tiles import LOG2E, flat
from gromap.transport.truncation import Tiles

kernels: Any = written  # in a language without types
PROGRAMS = 132 * 64  # enough to fill a card evenly
FEATURE_CHUNK = 64  # features of one tensor-core product: 21 of them, split in three, fill it
HALF_MAX = 6e4  # the range of fp16
CORNER = 2048  # numbers that one program reads at once


def _width(features: int) -> int:
    """Whole chunks of features, and what is left in a shorter one: two features beside 20 axes
    need no second chunk."""
    whole, left = divmod(features, FEATURE_CHUNK)
    return whole * FEATURE_CHUNK + (triton.next_power_of_2(max(16, left)) if left or not whole else 0)


def split(x: Tensor, scale: float, left: bool, beyond: Tensor) -> Tensor:
    """[hi, hi, lo] or [hi, lo, hi] of scale x in fp16, with zeros up to whole chunks; adds the
    overflows to `beyond`."""
    features = x.shape[-1]
    width = _width(3 * features)
    out = torch.empty(*x.shape[:-1], width, dtype=torch.float16, device=x.device)
    with torch.cuda.device_of(x):
        blocks = Blocks(CORNER, 1, 4, 1)
        numbers = x.numel() // features, features, scale, HALF_MAX, left, width, blocks.rows
        launch(
            kernels.split_kernel,
            (triton.cdiv(out.numel(), blocks.rows),),
            blocks,
            x.contiguous(),
            out,
            beyond,
            *numbers,
        )
    return out


def has_tensor_cores(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


_factors: weakref.WeakKeyDictionary[LowRank, tuple[Tensor, Tensor]] = weakref.WeakKeyDictionary()  # once per score


def factors(score: LowRank) -> tuple[Tensor, Tensor]:
    """What the kernels read of a score, prepared when first needed, for its transpose too: that
    reads the same."""
    if score not in _factors:
        q, k = _prepare(score)
        _factors[score], _factors[score.mT] = (q, k), (k, q)
    return _factors[score]


def _prepare(score: LowRank) -> tuple[Tensor, Tensor]:
    """Both factors with one batch axis, in bits: split in fp16, or as they are if they do not
    fit."""
    root, batch = math.sqrt(LOG2E), score.shape[:-2]
    q, k = (flat(z, batch, 2) for z in (score.q, score.k))
    if has_tensor_cores(q.device):
        beyond = torch.zeros(1, dtype=torch.int32, device=q.device)
        halves = split(q, root, True, beyond), split(k, root, False, beyond)
        if not bool(beyond):
            return halves
    missing = _width(q.shape[-1]) - q.shape[-1]
    q, k = (torch.nn.functional.pad(root * z, (0, missing)).contiguous() for z in (q, k))
    return q, k


def _aligned(x: Tensor) -> Tensor:
    """Contiguous, and at an address that does not make Triton compile a kernel anew."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


class Blocks(NamedTuple):
    """How a kernel is cut: rows and columns of one block, warps and stages."""

    rows: int
    cols: int
    warps: int
    stages: int


OPTIONS = {  # the first is the fastest on an H200
    "sums": [Blocks(128, 64, 4, 4), Blocks(64, 128, 4, 3), Blocks(64, 64, 4, 2)],
    "lse": [Blocks(128, 64, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2)],
    "apply": [Blocks(64, 64, 4, 3), Blocks(128, 32, 4, 3), Blocks(64, 32, 4, 2)],
    "short": [Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(32, 32, 4, 2)],  # a whole chunk and part of another
    "wide": [Blocks(64, 64, 4, 2), Blocks(64, 64, 4, 3), Blocks(32, 32, 4, 2)],  # several, or features in fp32
}
# pairs of points of a problem that tells the options apart, and does not take long
TELLING = range(2 * 10**9, 2 * 10**11)
_best: dict[tuple[Any, ...], Blocks] = {}
T = TypeVar("T")


def _tuned(kind: str, z: _Operands, run: Callable[[Blocks], T]) -> T:
    """Run a kernel with the fastest of its options, as timed once per kind of problem; the
    first, until a problem can tell."""
    options = OPTIONS[_shape_of(z.q) or kind]
    key = (kind, z.q.shape[-1], z.q.dtype, z.active and z.active.sizes, z.q.device)
    with torch.cuda.device_of(z.q):
        if key not in _best and z.q.is_cuda and z.count * z.n * z.m in TELLING:
            _best[key] = min(options, key=lambda blocks: _milliseconds(lambda: run(blocks)))
        if key in _best:
            return run(_best[key])
        for blocks in options[:-1]:
            try:
                return run(blocks)
            except OutOfResources:  # a smaller card
                continue
        return run(options[-1])


def _shape_of(q: Tensor) -> str | None:
    """How features differ from a single chunk in fp16."""
    if q.dtype == torch.float16 and q.shape[-1] < 2 * FEATURE_CHUNK:
        return "short" if q.shape[-1] > FEATURE_CHUNK else None
    return "wide"


def _milliseconds(run: Callable[[], Any]) -> float:
    """The shorter of two runs, after one that compiles; infinite where the card has too little
    shared memory."""
    times: list[float] = []
    try:
        for _ in range(3):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    except OutOfResources:
        return math.inf
    return min(times[1:])


class _Operands:
    """The two factors, the biases in nats with one batch axis, and the lists of tiles."""

    def __init__(self, score: LowRank, u: Tensor | None, v: Tensor, active: Tiles | None):
        *lead, self.n, self.m = score.shape
        self.batch = torch.Size(lead)
        self.count = math.prod(lead)
        self.q, self.k = factors(score)
        self.v = _aligned(flat(v, self.batch, 1))
        self.u = self.v if u is None else _aligned(flat(u, self.batch, 1))
        self.active = active

    def walk(self, blocks: Blocks, over_rows: bool = False) -> tuple[Any, ...]:
        """The arguments that all kernels share. A program owns a block of columns and walks over
        rows, or the other way."""
        active, width = self.active, self.q.shape[-1]
        if active is None:
            lists, own, other = (self.v, self.v), 0, 0
        else:
            lists = active.by_col if over_rows else active.by_row
            own, other = active.sizes[::-1] if over_rows else active.sizes
        return (*lists, self.n, self.m, own, other, width, min(FEATURE_CHUNK, width), blocks.rows, blocks.cols)


def sums(score: LowRank, u: Tensor, v: Tensor, active: Tiles | None = None) -> tuple[Tensor, Tensor]:
    """Row and column sums of exp(s_ij + u_i + v_j), one exp per pair.  (..., N) and (..., M)"""
    z = _Operands(score, u, v, active)
    half = -(-z.count * z.n // 32) * 32

    def run(blocks: Blocks) -> tuple[Tensor, Tensor]:
        both = torch.zeros(half + z.count * z.m, device=z.v.device)
        r, c = both[: z.count * z.n], both[half:]
        wide = triton.cdiv(z.m, blocks.cols)
        pieces = max(1, min(triton.cdiv(z.n, blocks.rows), PROGRAMS // (wide * z.count)))
        launch(
            kernels.sums_kernel,
            (wide, pieces, z.count),
            blocks,
            z.q,
            z.k,
            z.u,
            z.v,
            r,
            c,
            *z.walk(blocks, over_rows=True),
        )
        return r.view(*z.batch, z.n), c.view(*z.batch, z.m)

    return _tuned("sums", z, run)


def lse(score: LowRank, v: Tensor, active: Tiles | None = None) -> Tensor:
    """log Σ_j exp(s_ij + v_j).  (..., N)"""
    z = _Operands(score, None, v, active)

    def run(blocks: Blocks) -> Tensor:
        out = torch.empty(*z.batch, z.n, device=z.v.device)
        grid = triton.cdiv(z.n, blocks.rows), z.count
        launch(kernels.lse_kernel, grid, blocks, z.q, z.k, z.v, out, *z.walk(blocks))
        return out

    return _tuned("lse", z, run)


def apply(score: LowRank, u: Tensor, v: Tensor, w: Tensor, active: Tiles | None = None) -> Tensor:
    """Σ_j exp(s_ij + u_i + v_j) w_j for the rows w_j of a (..., M, w) tensor.  (..., N, w)"""
    z = _Operands(score, u, v, active)
    w = flat(w, z.batch, 2).contiguous()
    columns = w.shape[-1]
    if z.q.dtype == torch.float16:
        half = torch.bfloat16 if w.is_cuda else torch.float16  # Triton's interpreter has no bfloat16
        high = w.to(half)
        w = torch.cat([high, (w - high.float()).to(half)], -1)
    BW = max(16, min(64, triton.next_power_of_2(columns)))

    def run(blocks: Blocks) -> Tensor:
        out = torch.empty(z.count, z.n, columns, device=w.device)
        grid = triton.cdiv(z.n, blocks.rows), triton.cdiv(columns, BW), z.count
        launch(kernels.apply_kernel, grid, blocks, z.q, z.k, z.u, z.v, w, out, columns, *z.walk(blocks), BW)
        return out.view(*z.batch, z.n, columns)

    return _tuned("apply", z, run)


def argmax(score: LowRank, v: Tensor) -> Tensor:
    """The column of the largest s_ij + v_j of each row.  (..., N)"""
    z = _Operands(score, None, v, None)

    def run(blocks: Blocks) -> Tensor:
        out = torch.empty(*z.batch, z.n, dtype=torch.long, device=z.v.device)
        grid = triton.cdiv(z.n, blocks.rows), z.count
        launch(kernels.argmax_kernel, grid, blocks, z.q, z.k, z.v, out, *z.walk(blocks))
        return out

    return _tuned("lse", z, run)


def cell_max(q: Tensor, f: Tensor, d: Tensor) -> Tensor:
    """max over i in cell I of f_i + q_i·d_J, for (I, size, R), (I, size) and (J, R).  (I, J)"""
    cells, size, features = q.shape
    out = torch.empty(cells, len(d), device=q.device)
    blocks = Blocks(min(64, triton.next_power_of_2(max(16, size))), 64, 4, 2)
    with torch.cuda.device_of(q):
        grid = cells, triton.cdiv(len(d), blocks.cols)
        given = q.contiguous(), f.contiguous(), d.contiguous(), out, len(d), features, size, blocks.rows, blocks.cols
        launch(kernels.cell_max_kernel, grid, blocks, *given)
    return out


def launch(kernel: Any, grid: tuple[int, ...], blocks: Blocks, *args: Any) -> None:
    kernel[grid](*args, num_warps=blocks.warps, num_stages=blocks.stages)
