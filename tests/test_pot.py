"""gromap.pot beside POT: what goes in and out, and values that are not higher."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gromap.pot as gw
from tests.conftest import cloud

ot = pytest.importorskip("ot")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sinkhorn did not converge"),  # of POT
    pytest.mark.filterwarnings("ignore:Warning. numerical errors"),
    pytest.mark.filterwarnings("ignore:Solver failed"),
    pytest.mark.filterwarnings("ignore:hardly any start"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
LOSSES = ["square_loss", "kl_loss"]


def problem(n: int = 30, m: int = 25, seed: int = 0):
    """M, C1, C2, p, q"""
    (x, p), (y, q) = cloud(n, 3, seed), cloud(m, 2, seed + 1)
    rng = np.random.default_rng(seed)
    M = ot.dist(rng.normal(size=(n, 2)), rng.normal(size=(m, 2)))
    return M, ot.dist(x, x, "euclidean"), ot.dist(y, y, "euclidean"), p / p.sum(), q / q.sum()


def entropy(T: np.ndarray) -> float:
    return -float((T[T > 0] * np.log(T[T > 0])).sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["gromov_wasserstein", "fused_gromov_wasserstein"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sharp_values_are_not_above_those_of_pot(name, loss, seed):
    M, C1, C2, p, q = problem(seed=seed)
    args = (M, C1, C2, p, q) if "fused" in name else (C1, C2, p, q)
    T, log = getattr(gw, name)(*args, loss_fun=loss, log=True)
    theirs, known = getattr(ot.gromov, name)(*args, loss_fun=loss, log=True)
    assert (type(T), T.dtype, T.shape) == (type(theirs), theirs.dtype, theirs.shape)
    np.testing.assert_allclose(T.sum(1), p, atol=1e-12)
    np.testing.assert_allclose(T.sum(0), q, atol=1e-12)
    dist = "fgw_dist" if "fused" in name else "gw_dist"
    assert log[dist] <= known[dist] * (1 + 1e-9)
    value = ot.gromov.gwloss(*ot.gromov.init_matrix(C1, C2, p, q, loss), T)
    if "fused" in name:
        value = 0.5 * value + 0.5 * (M * T).sum()
        assert log["quad_loss"] + log["lin_loss"] == pytest.approx(value)
    assert log[dist] == pytest.approx(value, rel=1e-9)
    again = getattr(gw, name)(*args, loss_fun=loss, G0=np.outer(p, q))
    np.testing.assert_allclose(again, theirs, atol=1e-10)  # from the start of POT


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["entropic_gromov_wasserstein", "entropic_fused_gromov_wasserstein"])
def test_entropic_plans_are_those_of_pot_where_the_blur_leaves_one(name, loss):
    M, C1, C2, p, q = problem()
    args = (M, C1, C2, p, q) if "fused" in name else (C1, C2, p, q)
    how = {"loss_fun": loss, "epsilon": 20.0}
    theirs, known = getattr(ot.gromov, name)(*args, log=True, tol=1e-12, numItermax=10_000, **how)
    T, log = getattr(gw, name)(*args, log=True, **how)
    np.testing.assert_allclose(T, theirs, atol=1e-6)
    dist = "fgw_dist" if "fused" in name else "gw_dist"
    assert log[dist] == pytest.approx(known[dist], rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["entropic_gromov_wasserstein2", "entropic_fused_gromov_wasserstein2"])
def test_entropic_energies_are_not_above_those_of_pot(name, loss):
    M, C1, C2, p, q = problem(16, 12)
    args, eps = (M, C1, C2, p, q) if "fused" in name else (C1, C2, p, q), 0.2
    value, log = getattr(gw, name)(*args, loss_fun=loss, epsilon=eps, log=True)
    theirs, known = getattr(ot.gromov, name)(*args, loss_fun=loss, epsilon=eps, log=True, numItermax=10_000)
    np.testing.assert_allclose(known["T"].sum(0), q, atol=1e-4)
    np.testing.assert_allclose(log["T"].sum(0), q, atol=1e-6)
    assert value - eps * entropy(log["T"]) <= theirs - eps * entropy(known["T"]) + 1e-5
    assert value == log["fgw_dist" if "fused" in name else "gw_dist"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_come_back_with_their_precision(dtype):
    args = [torch.tensor(z, dtype=dtype) for z in problem()]
    for T in (gw.fused_gromov_wasserstein(*args), gw.entropic_gromov_wasserstein(*args[1:], epsilon=1.0)):
        assert isinstance(T, torch.Tensor)
        assert T.dtype == dtype
        torch.testing.assert_close(T.sum(0), args[4], atol=1e-5, rtol=0)
    assert gw.gromov_wasserstein2(*args[1:]).dtype == dtype


def test_gradients_are_those_of_pot_at_its_plan():
    given = [torch.tensor(z) for z in problem()]
    start = given[3][:, None] * given[4]
    values, grads = [], []
    for library in (gw, ot.gromov):
        inputs = [z.clone().requires_grad_() for z in given]
        alpha = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        value = library.fused_gromov_wasserstein2(*inputs, alpha=alpha, G0=start)
        value.backward()
        values.append(float(value.detach()))
        grads.append([z.grad for z in inputs] + [alpha.grad])
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-8 * float(theirs.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("side", [0, 1])
def test_gradients_of_the_kl_loss_are_finite_differences(side):
    """Those of POT add 1e-15 below logarithms where its loss adds 1e-18, and are off for it."""
    _, C1, C2, p, q = (torch.tensor(z) for z in problem(12, 10))
    costs = [C1, C2]
    T = gw.gromov_wasserstein(C1, C2, p, q, "kl_loss")
    step = 1e-6 * (costs[side] @ costs[side]) * (costs[side] > 0)
    costs[side].requires_grad_()
    gw.gromov_wasserstein2(*costs, p, q, "kl_loss", G0=T).backward()
    slope, ends = float((costs[side].grad * step).sum()), []
    for sign in (1, -1):
        moved = [c.detach() + sign * step if k == side else c.detach() for k, c in enumerate(costs)]
        ends.append(float(gw.gromov_wasserstein2(*moved, p, q, "kl_loss", G0=T)))
    assert (ends[0] - ends[1]) / 2 == pytest.approx(slope, rel=1e-4)


def test_gradients_of_weights_are_finite_differences():
    _, C1, C2, p, q = (torch.tensor(z) for z in problem(12, 10))
    step = torch.zeros_like(p)
    step[0], step[3] = 1e-5, -1e-5
    T = gw.gromov_wasserstein(C1, C2, p, q)
    p.requires_grad_()
    gw.gromov_wasserstein2(C1, C2, p, q, G0=T).backward()
    with torch.no_grad():
        ends = [float(gw.gromov_wasserstein2(C1, C2, p + s, q, G0=T)) for s in (step, -step)]
    assert (ends[0] - ends[1]) / 2 == pytest.approx(float(p.grad @ step), rel=0.02)


SCRIPT = """
import numpy as np
rng = np.random.default_rng(3)
n = 24
x = rng.normal(size=(n, 2)) * [2, 1]
order = rng.permutation(n)
y = x[order] @ np.array([[0.6, -0.8], [0.8, 0.6]])
C1 = np.linalg.norm(x[:, None] - x, axis=-1)
C2 = np.linalg.norm(y[:, None] - y, axis=-1)
C1, C2 = C1 / C1.max(), C2 / C2.max()
p, q = np.ones(n) / n, np.ones(n) / n

T0, log0 = gw.gromov_wasserstein(C1, C2, p, q, "square_loss", verbose=False, log=True)
T, log = gw.entropic_gromov_wasserstein(C1, C2, p, q, "square_loss", epsilon=5e-3, log=True, verbose=False)
d0 = gw.gromov_wasserstein2(C1, C2, p, q, "square_loss")
d = gw.entropic_gromov_wasserstein2(C1, C2, p, q, "square_loss", epsilon=5e-3)

labels = np.arange(n) % 3
M = (labels[:, None] != labels[order]).astype(float)
fused = gw.fused_gromov_wasserstein(M, C1, C2, p, q, loss_fun="square_loss", alpha=0.5)
value, facts = gw.fused_gromov_wasserstein2(M, C1, C2, p, q, alpha=0.5, log=True)
soft = gw.entropic_fused_gromov_wasserstein(M, C1, C2, p, q, epsilon=5e-3, alpha=0.5)
found = [T0, T, fused, soft]
numbers = [log0["gw_dist"], log["gw_dist"], d0, d, value, facts["lin_loss"]]
"""


def test_a_script_of_pot_runs_with_the_other_import():
    mine, theirs = {"gw": gw}, {"gw": ot.gromov}
    for names in (mine, theirs):
        exec(SCRIPT, names)
    for T in mine["found"]:
        assert (T.argmax(0) == mine["order"]).mean() > 0.9
        np.testing.assert_allclose(T.sum(0), 1 / 24, atol=1e-6)
    for a, b in zip(mine["numbers"], theirs["numbers"], strict=True):
        assert np.ndim(a) == 0
        assert a <= b + 1e-4


C = 1 - np.eye(4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gw.gromov_wasserstein(C, C + 0.1 * np.eye(4)), "C2 has a non-zero diagonal"),
        (lambda: gw.gromov_wasserstein(C, np.triu(C)), "C2 is not symmetric"),
        (lambda: gw.gromov_wasserstein(C, C, np.ones(4)), "p has the sum 4: divide it"),
        (lambda: gw.gromov_wasserstein(C, C, loss_fun="l1"), "unknown loss_fun 'l1'"),
        (lambda: gw.fused_gromov_wasserstein(C[:3], C, C), "M must have one row per point"),
        (lambda: gw.fused_gromov_wasserstein(C * np.nan, C, C), "M has NaN"),
        (lambda: gw.gromov_wasserstein(C, C, G0=np.ones((4, 4))), "the sums of G0 miss p and q by 15"),
        (lambda: gw.gromov_wasserstein(C, C, G0=np.ones((4, 3))), r"G0 has shape \(4, 3\), expected"),
        (lambda: gw.entropic_gromov_wasserstein(C, C, epsilon=1e-30), "too small for torch.float64"),
        (lambda: gw.entropic_gromov_wasserstein(C, C, solver="BAPG"), "unknown solver"),
        (lambda: gw.entropic_fused_gromov_wasserstein(C, C, C, solver="PPA"), "knows no features"),
        (lambda: gw.entropic_gromov_wasserstein2(T4, T4, torch.full((4,), 0.25).requires_grad_()), "gradients for wei"),
        (
            lambda: gw.partial_gromov_wasserstein(C, C),
            "gromap.pot has no 'partial_gromov_wasserstein': use gromap.solve",
        ),
    ],
)
def test_what_is_not_served_says_so(call, message):
    with pytest.raises((ValueError, AttributeError), match=message):
        call()


def test_epsilon_errors_tell_their_unit():
    with pytest.raises(ValueError, match="epsilon") as caught:
        gw.entropic_gromov_wasserstein(10 * C, 10 * C, epsilon=1e-30)
    assert "by which epsilon = 1e-30 was divided" in caught.value.__notes__[0]


def test_numpy_and_torch_do_not_mix():
    with pytest.raises(TypeError, match="C1 is a tensor of torch and p is not"):
        gw.gromov_wasserstein(T4, T4, np.full(4, 0.25))


T4 = torch.tensor(C)
