"""Truncation: the spatial order, the bound on every tile, and reductions that lose no more than
they say."""

from __future__ import annotations

import math

import pytest
import torch

from gromap.transport import Dense, Grid, LowRank, Truncated, split_cells
from gromap.transport.marginals import Marginals
from gromap.transport.sinkhorn import Potentials, Sinkhorn, sinkhorn
from gromap.transport.truncation import CELL_POINTS, MAX_CELLS


def transport(n, m, dtype=torch.float64, loss=1e-4, reach=20.0, seed=0):
    """A converged problem between two curves that lie far apart: score, f, g, log a, log b."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.rand(size, dtype=torch.float64, generator=generator) for size in (n, m))
    x, y = (torch.stack([z, (3 * z).sin(), (5 * z).cos()], 1) for z in (x, y))
    q, k = reach * x, reach * (y + 0.5)
    a, b = (0.2 + torch.rand(size, dtype=torch.float64, generator=generator) for size in (n, m))
    log_a, log_b = (a / a.sum()).log(), (b / b.sum()).log()
    score = LowRank(q, k)
    end = sinkhorn(
        score, Marginals(log_a, log_b), Potentials(torch.zeros_like(a), torch.zeros_like(b)), Sinkhorn(3000, tol=1e-6)
    )
    grid = Grid(split_cells(x.to(dtype)), split_cells(y.to(dtype)), loss)
    return LowRank(q.to(dtype), k.to(dtype), grid), *(t.to(dtype) for t in (end.f, end.g, log_a, log_b))


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 1000, 1025])
def test_cells_are_a_permutation_of_tight_runs(n):
    x = torch.randn(n, 2)
    cells = split_cells(x)
    assert torch.equal(cells.order.sort().values, torch.arange(n))
    assert torch.equal(cells.order[cells.place], torch.arange(n))
    if n >= 1000:
        spread = torch.stack([part.var(0).sum() for part in x[cells.order].split(CELL_POINTS)[:-1]]).mean()
        assert float(spread) < 0.35 * float(x.var(0).sum())


def test_large_clouds_have_large_cells():
    assert split_cells(torch.randn(CELL_POINTS * MAX_CELLS, 1)).size == CELL_POINTS
    assert split_cells(torch.randn(CELL_POINTS * MAX_CELLS + 1, 1)).size == 2 * CELL_POINTS


def test_equal_points_have_an_order():
    assert torch.equal(split_cells(torch.ones(300, 3)).order.sort().values, torch.arange(300))


@pytest.mark.parametrize("loss", [1e-2, 1e-4])
def test_the_neglected_mass_is_bounded(loss):
    score, f, g, log_a, log_b = transport(1500, 1300, loss=loss)
    near = score.truncate(f, g, log_a, log_b)
    assert near.tile_share is not None
    assert near.tile_share < 0.6
    u, v = f + log_a, g + log_b
    exact, got = score.sums(u, v), near.sums(u, v)
    for full, part, w in zip(exact, got, (log_a.exp(), log_b.exp()), strict=True):
        assert bool((part <= full * (1 + 1e-9)).all())
        assert bool((full - part <= loss * w).all())
    assert float(exact[0].sum() - got[0].sum()) <= near.neglected_mass + 1e-12
    assert near.neglected_mass <= loss
    w = torch.randn(1300, 4, dtype=torch.float64)
    torch.testing.assert_close(
        near.apply(u, v, w), score.apply(u, v, w), rtol=0, atol=loss * float(w.abs().max()) / 1000
    )
    assert float((near.lse(v) - score.lse(v)).abs().max()) < 1.1 * loss
    assert float((near.mT.lse(u) - score.mT.lse(u)).abs().max()) < 1.1 * loss


def test_no_row_loses_much_of_what_it_holds():
    """Where marginals are not fixed, a row may hold far less than its weight."""
    score, f, g, log_a, log_b = transport(1500, 1300)
    held = -60 * torch.rand(1500, dtype=torch.float64), torch.zeros(1300, dtype=torch.float64)
    u, v = f + held[0] + log_a, g + log_b
    near = score.truncate(f + held[0], g, log_a, log_b, held)
    assert near.tile_share is not None
    assert near.tile_share < 0.6
    for full, part in zip(score.sums(u, v), near.sums(u, v), strict=True):
        assert bool((full - part <= 1.1e-4 * full).all())
    less = score.truncate(f + held[0], g, log_a, log_b)
    assert float(((score.sums(u, v)[0] - less.sums(u, v)[0]) / score.sums(u, v)[0]).max()) > 0.9


def test_tiles_left_out_hold_nothing_large():
    score, f, g, log_a, log_b = transport(1400, 1250)
    near = score.truncate(f, g, log_a, log_b)
    assert isinstance(near, Truncated)
    assert near.active is not None
    pi = (score.dense() + f[:, None] + g)[score.grid.rows.order][:, score.grid.cols.order]
    starts, items = (t.tolist() for t in near.active.by_row)
    for cell, rows in enumerate(pi.split(CELL_POINTS)):
        listed = set(items[starts[cell] : starts[cell + 1]])
        for other, block in enumerate(rows.split(CELL_POINTS, 1)):
            assert other in listed or float(block.max()) < math.log(1e-4)


def test_where_it_does_not_pay_nothing_changes():
    score, f, g, log_a, log_b = transport(300, 280, reach=0.5)
    assert score.truncate(f, g, log_a, log_b) is score
    plain = LowRank(score.q, score.k)
    assert plain.truncate(f, g, log_a, log_b) is plain
    dense = Dense(score.dense())
    assert dense.truncate(f, g, log_a, log_b) is dense


@pytest.mark.parametrize("jump", [0.1, 3.0, 20.0])
def test_sinkhorn_survives_a_jump(jump):
    """From the potentials of another score, lists miss most of the mass at first: the steps
    repair this by themselves."""
    score, f, g, log_a, log_b = transport(600, 500)
    moved = LowRank(jump * score.q, score.k, score.grid)
    options = Sinkhorn(1000, tol=1e-3)
    end = sinkhorn(moved, Marginals(log_a, log_b), Potentials(f, g), options)
    want = sinkhorn(LowRank(moved.q, moved.k), Marginals(log_a, log_b), Potentials(f, g), options)
    assert bool(torch.isfinite(end.f).all() & torch.isfinite(end.g).all())
    assert float(end.error) <= 2 * max(1e-3, float(want.error))
    dual = [float(z.f @ log_a.exp() + z.g @ log_b.exp()) for z in (end, want)]
    assert dual[0] == pytest.approx(dual[1], abs=2e-2)
