"""What POT is given, as tensors, and what it returns of a solution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gromap import _check, _options
from gromap._pair import EPSILON
from gromap._solution import Solution
from gromap._space import Space
from gromap._torch import svd

TINY = 1e-18  # added below a logarithm, as POT does
# points up to which the search sees all axes, and the share of variance that it sees between more:
# on 300 points in R² and R³ 0.7 s for 10, at the same value. What is solved are the costs as given
FEW, SEEN = 200, 0.8
OFF = 1e-4  # of the sum of weights from one, that float32 may bring


@dataclass(frozen=True, eq=False)
class Problem:
    """What POT is given, as tensors that keep their gradients."""

    C1: Tensor  # (N, N)
    C2: Tensor  # (M, M)
    p: Tensor | None  # (N,)
    q: Tensor | None  # (M,)
    M: Tensor | None  # (N, M)
    alpha: Any  # a number, or a tensor
    loss: str
    numpy: bool

    @classmethod
    def of(cls, C1: Any, C2: Any, p: Any, q: Any, loss: str, M: Any = None, alpha: Any = 1.0) -> Problem:
        _check.choice(loss, ["square_loss", "kl_loss"], "loss_fun")
        numpy = not isinstance(C1, Tensor)
        given = [("C1", C1), ("C2", C2), ("p", p), ("q", q), ("M", M)]
        mixed = [name for name, z in given if z is not None and isinstance(z, Tensor) == numpy]
        if mixed:
            kind = ("a tensor of torch", "an array of numpy")
            raise TypeError(f"C1 is {kind[numpy]} and {mixed[0]} is not: give all matrices and weights as one kind.")
        tensors = [None if z is None else _floating(z, name) for name, z in given]
        for name, z in given[2:]:
            if z is not None:
                _check.tensor(z, name)
        for name, w in (("p", tensors[2]), ("q", tensors[3])):
            if w is not None and abs(float(w.detach().sum()) - 1) > OFF:
                raise ValueError(f"{name} has the sum {float(w.detach().sum()):.4g}: divide it by its sum.")
        first, second, left, right, linear = tensors
        assert first is not None
        assert second is not None
        wide = torch.promote_types(first.dtype, second.dtype)
        return cls(first.to(wide), second.to(wide), left, right, linear, alpha, loss, numpy)

    @cached_property
    def spaces(self) -> tuple[Space, Space]:
        """Both sides, between whose costs (c - c')² has the plans of the loss.

        x log x - x + y - x log y: between fixed marginals terms of one side alone are constant, and
        the rest is that of (x - ½ log(1 + y / δ))², δ = 1e-18, which is zero for y = 0.
        """
        C2 = self.C2.detach()
        if self.loss == "kl_loss":
            C2 = (0.5 * torch.log1p(_check.cost_matrix(C2, "C2").double() / TINY)).to(C2)
        p, q = (None if w is None else w.detach() for w in (self.p, self.q))
        dim = "auto" if max(len(self.C1), len(C2)) <= FEW else SEEN
        return Space.from_costs(self.C1.detach(), p, dim=dim, name="C1"), Space.from_costs(C2, q, dim=dim, name="C2")

    def check_coupling(self, G0: Any) -> None:
        """Refuse a start whose sums are not the weights."""
        T = _check.tensor(G0, "G0").double()
        weights = [space.measure.weights.double() for space in self.spaces]
        if T.shape != (len(self.C1), len(self.C2)):
            raise ValueError(f"G0 has shape {tuple(T.shape)}, expected {(len(self.C1), len(self.C2))}.")
        off = max(float((T.sum(1 - side) - w).abs().sum()) for side, w in enumerate(weights))
        if off > OFF:
            raise ValueError(f"the sums of G0 miss p and q by {off:.3g}: pass a coupling, such as np.outer(p, q).")

    def options(self) -> dict[str, Any]:
        """What `solve` takes so that costs are about one."""
        unit = self.unit
        if self.M is None:
            return {"scale": unit}
        M, (n, m) = self.M.detach() / unit**2, (len(self.C1), len(self.C2))
        if M.shape != (n, m):
            raise ValueError(f"M must have one row per point of C1 and one column per point of C2, got {M.shape}.")
        u, scales, vt = svd(M, full_matrices=False)  # few factors, where M is of squared distances
        rank = int((scales > torch.finfo(M.dtype).eps * max(n, m) * scales[0]).sum()) or 1
        sides = (u[:, :rank] * scales[:rank], vt[:rank].mT)
        return {"scale": unit, "features": sides, "feature_cost": "factors", "alpha": self.share}

    @property
    def share(self) -> float:
        """Alpha as a number."""
        return _options.balance(self.alpha.item() if isinstance(self.alpha, Tensor) else self.alpha)

    @property
    def unit(self) -> float:
        """What costs are divided by."""
        return max(space.scale for space in self.spaces)

    @property
    def blur(self) -> float:
        """A temperature that is small beside the terms of the energy, in units of these."""
        alpha, (x, y) = self.share, self.spaces
        spread = 0.0 if self.M is None else float(self.M.detach().max() - self.M.detach().min()) / 2
        return EPSILON * (alpha * x.scale * y.scale + (1 - alpha) * spread) / self.unit**2

    def terms(self, T: Tensor) -> tuple[Tensor, Any]:
        """Σ L(C1, C2) T T and <M, T>, at a fixed plan.  () twice, float64"""
        T, C1, C2 = T.double(), self.C1.double(), self.C2.double()
        rows, cols = T.sum(1), T.sum(0)
        if self.loss == "square_loss":
            f1, f2, h2 = C1.square(), C2.square(), 2 * C2
        else:
            f1, f2, h2 = C1 * (C1 + TINY).log() - C1, C2, (C2 + TINY).log()
        quadratic = rows @ f1 @ rows + cols @ f2 @ cols - ((C1 @ T @ h2.mT) * T).sum()
        return quadratic, 0.0 if self.M is None else (self.M.double() * T).sum()

    def potentials(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """Of the linear program at a plan: how the value depends on the weights, but for a
        constant.  (N,), (M,)"""
        plan = T.detach().double().requires_grad_()
        quadratic, linear = self.terms(plan)
        energy = self.alpha * quadratic + (1 - self.alpha) * linear
        (slope,) = torch.autograd.grad(energy, plan)
        a, b, cost = (z.detach().cpu().numpy() for z in (plan.sum(1), plan.sum(0), slope - slope.min()))
        found = _check.extra("ot", "pot", "POT").emd(a, b * (a.sum() / b.sum()), cost, numItermax=10_000_000, log=True)
        u, v = (torch.as_tensor(np.asarray(found[1][name])).to(T) for name in "uv")
        return u, v


@dataclass(frozen=True)
class Result:
    """A coupling, and what POT returns of it."""

    problem: Problem
    solution: Solution
    sharp: bool

    @cached_property
    def T(self) -> Tensor:
        return torch.as_tensor(self.solution.plan.dense(force=True))

    def coupling(self, log: bool) -> Any:
        """What functions return that are named after the plan."""
        T = self._out(self.T)
        return (T, self._value(log)[1]) if log else T

    def value(self, log: bool) -> Any:
        """What functions return whose name ends on 2."""
        value, facts = self._value(log)
        return (value, facts | {"T": self._out(self.T)}) if log else value

    def _value(self, log: bool) -> tuple[Any, dict[str, Any]]:
        problem, facts = self.problem, dict[str, Any]()
        quadratic, linear = problem.terms(self.T)
        quadratic, linear = problem.alpha * quadratic, (1 - problem.alpha) * linear
        value = quadratic + linear
        weights = [w for w in (problem.p, problem.q) if w is not None and w.requires_grad]
        if weights and not self.sharp:
            raise ValueError(
                "entropic values have no gradients for weights here: detach p and q, or use gromap.gw_loss."
            )
        if self.sharp and (weights or log):
            potentials = problem.potentials(self.T)
            facts |= {name: self._out(z) for name, z in zip("uv", potentials, strict=True)}
            for w, z in zip((problem.p, problem.q), potentials, strict=True):
                if w is not None:  # adds nothing but a gradient
                    value = value + ((w - w.detach()) * (z - z.mean())).sum()
        name = "gw_dist"
        if problem.M is not None:
            name = "fgw_dist"
            facts |= {"quad_loss": self._number(quadratic), "lin_loss": self._number(linear)}
        facts |= {name: self._number(value), "solution": self.solution}
        return facts[name], facts

    def _number(self, z: Any) -> Any:
        return self._out(z.to(self.problem.C1))

    def _out(self, z: Tensor) -> Any:
        return z.detach().numpy()[()] if self.problem.numpy else z


def _floating(z: Any, name: str) -> Tensor:
    """As a tensor of floating point numbers, which keeps its gradient."""
    t = _check.as_tensor(z, name)
    return t if t.is_floating_point() else t.double()
