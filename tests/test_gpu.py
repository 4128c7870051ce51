"""The same calls on a CUDA device: tensors stay there, and the answers are those of the CPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from gromap import CntGW, Gaussian, GromovLoss, KernelGW, Loop, Power, Sinkhorn, solve
from gromap.datasets import humans
from gromap.solvers.objective import lifted_score
from gromap.transport import Dense, Grid, LowRank, split_cells
from gromap.transport.cuda_graph import StepGraph
from gromap.transport.marginals import Marginals, half_step
from gromap.transport.sinkhorn import Potentials, sinkhorn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["cnt", "kernel"])
def test_cuda_equals_cpu(dtype, method):
    pair = humans()
    x, y = (torch.from_numpy(m.vertices[:800]).to(dtype) for m in (pair.source, pair.target))
    here = solve(x, y, method=method, epsilon=5e-3)
    there = solve(x.cuda(), y.cuda(), method=method, epsilon=5e-3)
    assert there.gamma.device.type == there.push(x.cuda()).device.type == "cuda"
    # misplaced mass moves the value
    assert there.history["energy"][-1] == pytest.approx(here.history["energy"][-1], rel=1e-3)
    assert float((there.p2p_12.cpu() == here.p2p_12).double().mean()) > 0.95
    moved = solve(x.numpy(), y.numpy(), method=method, epsilon=5e-3, device="cuda")
    assert isinstance(moved.gamma, np.ndarray)
    assert moved.stats.device.startswith("cuda")


PARTS = [{"reach": 0.1}, {"mass": 0.6}, {"reach": (None, 0.2), "fused": True}, {"fused": True}]


@pytest.mark.parametrize("given", PARTS, ids=str)
def test_parts_and_features_on_the_gpu(given):
    """The search has more starts there, and may find a lower minimum."""
    pair = humans()
    y = torch.from_numpy(pair.target.vertices[:800]).float()
    x = torch.from_numpy(pair.source.vertices[:800]).float()[y[:, 1] > y[:, 1].median()]
    given = dict(given)
    if given.pop("fused", False):
        given["features"] = x[:, 1], y[:, 1]
    here = solve(x, y, method="cnt", epsilon=5e-3, **given)
    if "features" in given:
        given["features"] = x[:, 1].cuda(), y[:, 1].cuda()
    there = solve(x.cuda(), y.cuda(), method="cnt", epsilon=5e-3, **given)
    assert there.converged
    assert there.value < 1.01 * here.value + 1e-5
    assert there.stats.engine == "triton"
    exact = solve(x.cuda(), y.cuda(), method="kernel", epsilon=5e-3, init=there, **given)
    assert exact.value == pytest.approx(there.value, rel=0.2)  # of all axes
    large = solve(x.repeat(8, 1).cuda(), y.repeat(8, 1).cuda(), epsilon=5e-3, reach=0.1)
    assert large.converged


def test_gradients_of_parts_on_the_gpu():
    x, y, f, g = (torch.randn(n, d, device="cuda", requires_grad=True) for n, d in ((300, 3), (250, 3)) * 2)
    values = []
    for to in ("cuda", "cpu"):
        loss = GromovLoss(epsilon=0.5, reach=1.0, debias=False, cost="sqeuclidean", init="zero")
        value = loss(x.to(to), y.to(to), features=(f.to(to), g.to(to)))
        values.append((value.detach().cpu(), *(z.cpu() for z in torch.autograd.grad(value, (x, y, f, g)))))
    for there, here in zip(*values, strict=True):
        assert float((there - here).norm()) < 0.02 * float(here.norm())


@pytest.mark.parametrize("method", ["lowrank-cost", CntGW(Loop(Sinkhorn(60, update="standard"), adaptive=False))])
def test_standard_steps_are_replayed_on_the_gpu(method):
    pair = humans()
    x, y = (torch.from_numpy(m.vertices[:700]).float() for m in (pair.source, pair.target))
    here, there = (solve(x.to(d), y.to(d), method=method, epsilon=5e-3, init="zero") for d in ("cpu", "cuda"))
    assert there.stats.engine == "triton"
    assert there.value == pytest.approx(here.value, rel=2e-3)


def test_a_collection_of_garbage_does_not_end_a_capture():
    """An older graph in a cycle is freed whenever Python collects, and CUDA forbids that while
    another is captured."""

    def double(score, to, state):
        waste = [[] for _ in range(1000)]  # sets off a collection
        return (score.matrix * state[0] * len(waste) / 1000,)

    def captured():
        score, state = Dense(torch.full((2,), 2.0, device="cuda")), (torch.ones(2, device="cuda"),)
        to = Marginals(torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda"))
        steps = StepGraph().steps(double, score, to, state, worth=True)
        return steps(state, 3)[0].tolist(), steps

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(5):
            result, steps = captured()
            assert result == [8.0, 8.0]
            cycle = [steps]
            cycle.append(cycle)
            del steps, cycle
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()


def test_twenty_thousand_points_on_the_gpu():
    pair = humans()
    rng = np.random.default_rng(0)
    x, y = (
        m.vertices[rng.integers(0, len(m.vertices), 20_000)] + 0.003 * rng.normal(size=(20_000, 3))
        for m in (pair.source, pair.target)
    )
    sol = solve(torch.tensor(x, dtype=torch.float32).cuda(), torch.tensor(y, dtype=torch.float32).cuda())
    assert sol.converged
    print(sol)


@pytest.mark.parametrize("kind", [{"reach": 0.2}, {"reach": (None, 0.2)}, {"reach": (0, 0.3)}, {"mass": 0.7}], ids=str)
def test_parts_on_the_gpu(kind):
    """Sinkhorn's steps are one CUDA graph for all outer steps, whose marginals ask for something
    else each time."""
    x, y = shape(900, 0).double(), shape(1000, 1)[:800].double()
    there = solve(x, y, method=CntGW(), init="zero", epsilon=3e-3, **kind)
    here = solve(x.cpu(), y.cpu(), method=CntGW(), init="zero", epsilon=3e-3, **kind)
    assert there.converged
    assert there.value == pytest.approx(here.value, rel=1e-3)
    assert float((there.kept_X.cpu() - here.kept_X).abs().max()) < 2e-2


def shape(n, seed, width=1.0):
    generator = torch.Generator().manual_seed(seed)
    s, t = torch.rand(2, n, generator=generator) * torch.tensor([[1.0], [width]])
    return torch.stack([2 * s, t + 0.3 * s**2, 0.4 * (3 * s).sin() + 0.1 * t], 1).cuda()


def test_truncation_on_the_gpu_loses_what_it_says():
    x, y = shape(70_000, 0), shape(66_000, 1)
    sol = solve(x, y)
    assert sol.converged
    assert sol.stats.engine == "triton"
    assert sol.stats.tiles is not None
    assert sol.stats.neglected_mass is not None
    assert sol.stats.tiles < 0.6
    assert sol.stats.neglected_mass < 1e-4
    near = sol.plan.score
    exact, got = (score.sums(sol.plan.u, sol.plan.v)[0].double() for score in (near.full, near))
    assert float(((exact - got) / exact).abs().max()) < 1e-3
    assert float((exact - got).sum()) < sol.stats.neglected_mass + 1e-5
    some = torch.arange(0, 70_000, 300, device="cuda")
    s = near.q[some].double() @ near.k.double().mT + sol.plan.u[some].double()[:, None] + sol.plan.v.double()
    assert float((got[some] / s.exp().sum(1) - 1).abs().max()) < 2e-3
    w = torch.randn(66_000, 3, device="cuda")
    assert float(((sol.plan @ w)[some].double() - s.exp() @ w.double()).abs().max()) < 2e-3 / 70_000


def test_violent_jumps_on_the_gpu():
    """Γ and ε jump by orders of magnitude between calls, tiles are left out: all stays finite,
    and rows can be made exact."""
    x, y = shape(50_000, 0), shape(45_000, 1)
    logs = [torch.full((len(z),), -float(np.log(len(z))), device="cuda") for z in (x, y)]
    grid = Grid(split_cells(x), split_cells(y), 1e-4)
    generator = torch.Generator().manual_seed(0)
    end = Potentials(torch.zeros(50_000, device="cuda"), torch.zeros(45_000, device="cuda"))
    for eps in (1.0, 1e-4, 1e-1, 1e-3, 1e-5, 1e-2):
        gamma = torch.randn(3, 3, generator=generator, dtype=torch.float64).cuda()
        score = lifted_score(gamma, x, y, eps, grid)
        end = sinkhorn(score, Marginals(*logs), Potentials(end.f, end.g), Sinkhorn(20))
        assert bool(torch.isfinite(end.f).all() & torch.isfinite(end.g).all() & torch.isfinite(end.error).all())
        f = half_step(score, logs[1], end.g)
        rows, _ = score.sums(f + logs[0], end.g + logs[1])
        assert float((rows.sum() - 1).abs()) < 2e-2


def test_kernels_are_tuned_once():
    from gromap.transport import triton as fused

    fused._best.clear()
    x = shape(50_000, 0)
    score, zero = LowRank(x, x), torch.zeros(50_000, device="cuda") - 20
    first = score.sums(zero, zero)[0]
    assert [key[0] for key in fused._best] == ["sums"]
    torch.testing.assert_close(score.sums(zero, zero)[0], first, rtol=1e-4, atol=0)


@pytest.mark.parametrize("cost", [Power(1.0), Power(2.0), Gaussian(0.5)])
@pytest.mark.parametrize("method", [CntGW, KernelGW])
def test_losses_and_gradients_on_the_gpu(cost, method):
    """float32 on CUDA beside float64 on the CPU, from the same start."""
    solver = method(Loop(Sinkhorn(100), max_steps=5000, max_iter=200, tol=1e-8, marginal_tol=1e-5))
    pair = humans()
    x, y = (
        torch.tensor(m.vertices[::13][:n], dtype=torch.float64) for m, n in ((pair.source, 300), (pair.target, 260))
    )
    a = 0.2 + torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = []
    for kind in ({"device": "cpu", "dtype": torch.float64}, {"device": "cuda", "dtype": torch.float32}):
        inputs = [t.to(**kind).clone().requires_grad_() for t in (x, y, a)]
        loss = GromovLoss(cost=cost, epsilon=1e-2, method=solver, init="zero")
        value = loss(*inputs)
        value.backward()
        assert value.device.type == kind["device"]
        found.append([value.detach(), *(t.grad for t in inputs)])
    for here, there in zip(*found, strict=True):
        assert there is not None
        assert float((there.cpu().double() - here).norm() / here.norm()) < 1e-2


def test_a_loss_at_fifty_thousand_points_on_the_gpu():
    x, y = shape(50_000, 0).requires_grad_(), shape(45_000, 1)
    torch.cuda.reset_peak_memory_stats()
    GromovLoss(epsilon=1e-2)(x, y).backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())
    assert torch.cuda.max_memory_allocated() < 6 << 30  # one N x M block would be 9 GB
