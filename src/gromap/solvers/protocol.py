"""The contracts: what `solve`, the losses and the landscape ask of a solver, a problem and a
start, and nothing more.

    Solver    frozen options              check, memory, problem, run
    Problem   one pair, prepared          start, score, correlate, energy, evaluate, matrix
    Start     what `init=` stands for     begin

A new solver is one file: a frozen dataclass with these methods, and its line in
`solvers/__init__.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from gromap._pair import Pair
from gromap._plan import Plan
from gromap._progress import Event
from gromap._solution import Status
from gromap.transport import Score
from gromap.transport.marginals import Marginals
from gromap.transport.rows import HERE, Rows
from gromap.transport.sinkhorn import Potentials, Sinkhorn

if TYPE_CHECKING:
    from gromap.solvers.embedded import CntProblem

Callback = Callable[[Event], Any]  # True stops


@dataclass(frozen=True)
class Loop:
    """Options of the outer loop.

    tol: the energy, and 8 |Γ - Γ'|², must change by less than this in one step, in units of the
    problem's energy, or of 20 times the energy itself where that is less; between few points in two
    steps, the second of which does not go farther than the first.
    marginal_tol: misplaced mass allowed at the end; between few points it is less, so that a
    coupling next to the plan has its energy to a thousandth.
    adaptive: Alg. kernel_gw_adaptive, from `sinkhorn.steps` up to `max_steps`, each Sinkhorn ending
    early once it is within `marginal_tol`; else always `sinkhorn` as given.
    """

    sinkhorn: Sinkhorn = Sinkhorn(steps=50)
    adaptive: bool = True
    max_steps: int = 800
    max_iter: int = 100
    tol: float = 1e-5
    marginal_tol: float = 1e-3

    def __post_init__(self) -> None:
        if self.max_iter < 1 or self.max_steps < self.sinkhorn.steps:
            raise ValueError(
                f"Loop needs max_iter >= 1 and max_steps >= {self.sinkhorn.steps} (sinkhorn.steps), got {self}."
            )
        if not (self.tol > 0 and self.marginal_tol > 0):
            raise ValueError(f"Loop needs tol > 0 and marginal_tol > 0, got {self.tol} and {self.marginal_tol}.")

    def rough(self) -> Loop:
        """No finer than the default: enough to tell minima apart, and for coarse levels."""
        return replace(self, tol=max(self.tol, Loop.tol), marginal_tol=max(self.marginal_tol, Loop.marginal_tol))


PUBLISHED = Loop(Sinkhorn(100, update="standard"), adaptive=False)  # of the solvers that came before (App. A)


class Problem(ABC):
    """One pair, prepared for one solver. Γ is whatever the solver represents the linear map, or
    the last plan, by."""

    primal = False  # Γ stands for a plan, from which the solver starts, and the potentials are not those of C_Γ
    relaxed = False  # marginals are not fixed, so that an undamped step may raise the energy
    rows: Rows = HERE  # who sums over the rows, of which this process may have some alone
    dense = False  # holds (N, M) arrays, so that a start may be any plan

    def __init__(self, a: Tensor, b: Tensor, eps: float, unit: float = 1.0, pair: Pair | None = None):
        self.a, self.b, self.eps, self.unit, self.pair = a, b, eps, unit, pair
        self.log_a, self.log_b = a.log(), b.log()

    @property
    @abstractmethod
    def embedded(self) -> CntProblem:
        """The same pair as a problem for a D x E matrix Γ: where starts are searched."""

    @abstractmethod
    def start(self, gamma: Tensor, plan: Plan | None = None) -> Any:
        """Γ from a D x E matrix, or from a plan where the solver takes one."""

    @abstractmethod
    def score(self, gamma: Any) -> Score:
        """-C_Γ / ε"""

    @abstractmethod
    def evaluate(self, gamma: Any, plan: Plan) -> tuple[float, float]:
        """L(π) and KL(π | α⊗β) for a plan as it is returned."""

    def moments(self, gamma: Any) -> tuple[Tensor, ...] | None:
        """What is known of a plan beside its linear map, where marginals are not fixed."""
        return None

    alpha = 1.0  # what L counts, the features count the rest

    def feature_value(self, plan: Plan) -> float:
        """Σ c_F π"""
        return 0.0

    def marginal_value(self, gamma: Any, plan: Plan) -> float:
        """What the marginals of a plan cost, where they are not fixed."""
        return 0.0

    @abstractmethod
    def matrix(self, gamma: Any, plan: Plan) -> Tensor:
        """Γ as a D x E matrix between the embeddings."""

    def plan(self, score: Score, f: Tensor, g: Tensor, numpy: bool = False) -> Plan:
        """π_ij = a_i b_j exp(s_ij + f_i + g_j), with potentials in nats."""
        return Plan.from_potentials(self.rows.score(score), f, g, self.a, self.b, numpy)

    @cached_property
    def fixed(self) -> Marginals:
        """Both marginals as they are given."""
        return Marginals(self.log_a, self.log_b, self.rows)

    @property
    def pairs(self) -> int:
        """How many pairs of points there are."""
        return self.rows.count(len(self.a)) * len(self.b)

    def marginals(self, gamma: Any) -> Marginals:
        """What the transport problem of Γ asks of the marginals."""
        return self.fixed

    def marginal_tol(self, tol: float) -> float:
        """Misplaced mass that moves the energy by less than this, where marginals are not fixed."""
        return math.inf

    def transport_value(self, gamma: Any, duals: Potentials, rows: Tensor) -> Tensor:
        """OT_ε(C_Γ) by its dual, with the row sums of π.  (...)"""
        return self.eps * self.marginals(gamma).dual(duals.f, duals.g, rows)

    def zero_potentials(self) -> Potentials:
        return Potentials(torch.zeros_like(self.log_a), torch.zeros_like(self.log_b))

    def gradient_terms(self, plan: Plan, side: int) -> tuple[Score, Tensor]:
        """-W and p of envelope.py, for the first (0) or second (1) space.  (N, N) as a score,
        and (N,)"""
        raise TypeError(f"{type(self).__name__} has no gradients: use 'cnt', 'kernel' or 'multiscale'.")

    def weight_slope(self, gamma: Any, plan: Plan, side: int) -> Tensor | None:
        """∂/∂a or ∂/∂b up to a constant, where it is known from the plan; None where it takes sums
        over costs (envelope.py).  (N,) or (M,)"""
        return None

    def feature_offsets(self, side: int) -> Tensor | float:
        """What features cost on one side alone.  (N,) or (M,)"""
        return 0.0

    @property
    def cost_error(self) -> tuple[float, float] | None:
        """Relative errors of the costs that were approximated by ones of low rank."""
        return None


class Alternating(Problem):
    """A problem for `loop.alternate`, whose steps are transport problems."""

    @abstractmethod
    def correlate(self, gamma: Any, score: Any, u: Tensor, v: Tensor) -> tuple[Any, Tensor]:
        """The next Γ, from the plan exp(s + u + v), and the row sums of the plan; of rows in
        several processes the part of this one."""

    @abstractmethod
    def energy(self, old: Any, new: Any, transport: Tensor) -> tuple[Tensor, Tensor]:
        """L(π) + ε KL(π | α⊗β), and how far Γ moved, given transport = OT_ε(C_Γ).  (...) twice"""

    def mix(self, old: Any, new: Any, t: float) -> Any:
        """(1 - t) times one Γ, and t times another, where `relaxed`."""
        raise TypeError(f"{type(self).__name__} has fixed marginals, and takes whole steps.")


class Stepping(Problem):
    """A problem for `loop.run_steps`, which takes steps of its own kind."""

    @abstractmethod
    def steps(self, gamma: Any, options: Loop) -> Iterator[tuple[Event, Any]]:
        """What a callback sees of each step, and Γ after it; without end."""


class Bilinear(Alternating):
    """A cost that is linear in Γ: its energy follows from a constant and a squared norm of Γ."""

    constant: float

    @abstractmethod
    def norm2(self, gamma: Any) -> Tensor: ...

    @abstractmethod
    def distance2(self, old: Any, new: Any) -> Tensor: ...

    def energy(self, old: Any, new: Any, transport: Tensor) -> tuple[Tensor, Tensor]:
        """C + 8 |Γ|² + OT_ε(C_Γ) - 8 |Γ - Γ'|², and 8 |Γ - Γ'|².  (...) twice"""
        change = 8 * self.distance2(old, new)
        return self.constant + 8 * self.norm2(old) + transport - change, change


@dataclass(frozen=True)
class Minima:
    """Distinct minima of one problem, the lowest first."""

    gamma: Tensor  # (K, D, E)
    energy: Tensor  # (K,)
    f: Tensor  # (K, N) potentials in nats
    g: Tensor  # (K, M)
    count: Tensor  # (K,) starts that went there
    mirrored: float | None = None  # how far the lowest one that was left out for its hand lies above these, relatively

    def __len__(self) -> int:
        return len(self.energy)

    def take(self, k: list[int] | slice) -> Minima:
        return Minima(self.gamma[k], self.energy[k], self.f[k], self.g[k], self.count[k], self.mirrored)

    def potentials(self, k: int) -> Potentials:
        return Potentials(self.f[k], self.g[k])


class Begin(NamedTuple):
    """Where a loop begins: Γ_0, potentials in nats, and the minima that a search met on the way.

    settled: whether an earlier solve has ended there, so that one quiet step shows that it still
    is an end.
    """

    gamma: Any
    duals: Potentials
    minima: Minima | None = None
    settled: bool = False


class Start(Protocol):
    """What `init=` stands for."""

    @property
    def on_all_points(self) -> bool:
        """Whether it knows potentials on all points, so that coarse levels are not needed."""
        ...

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        """Where to begin on `coarse`, which is the problem itself or a coarser version of it."""
        ...


class Outcome(NamedTuple):
    """Where a loop ended."""

    gamma: Any
    score: Score
    duals: Potentials
    energy: Tensor  # (...)
    status: Status
    events: list[Event]
    levels: tuple[int, ...] = ()  # points of each level of a pyramid
    minima: Minima | None = None


@runtime_checkable
class Shareable(Protocol):
    """A solver whose last level, on all points, many processes can take together."""

    @property
    def shares(self) -> bool:
        """Whether its options allow it."""
        ...

    def approach(self, problem: Any, start: Start) -> tuple[Begin, tuple[int, ...]]:
        """Where the loop on all points begins, and the points of each level of a pyramid."""
        ...


@runtime_checkable
class Solver(Protocol):
    """Frozen options of one algorithm: what `method=` takes."""

    @property
    def name(self) -> str:
        """What `method=` calls it."""
        ...

    @property
    def loop(self) -> Loop: ...

    @property
    def memory_advice(self) -> str:
        """What to do where memory is short."""
        ...

    def check(self, pair: Pair) -> None:
        """Warn of costs that it does not serve, or refuse them."""

    def memory(self, pair: Pair) -> int:
        """Bytes that a solve takes at most, about."""
        ...

    def problem(self, pair: Pair) -> Problem: ...

    def run(self, problem: Any, start: Start, callback: Callback | None = None) -> Outcome: ...

    def with_loop(self, loop: Loop) -> Solver:
        """The same solver with other options of its loop."""
        ...

    def for_gradients(self) -> Solver:
        """The same solver with values that have gradients fit for use (gromap.GromovLoss)."""
        ...


class SolverDefaults:
    """What most solvers share; they are dataclasses with a field `loop`."""

    memory_advice = "take fewer points."

    def check(self: Solver, pair: Pair) -> None:
        """Any cost will do, without features and between fixed marginals."""
        if pair.fused is not None or pair.relaxed:
            raise ValueError(
                f"method {self.name!r} knows no features= and neither reach= nor mass=: use 'cnt', 'multiscale' or "
                "'kernel'."
            )

    def with_loop(self, loop: Loop) -> Self:
        return replace(self, loop=loop)  # type: ignore[type-var]

    def for_gradients(self) -> Self:
        raise TypeError(f"{type(self).__name__} has no gradients: use 'cnt', 'kernel' or 'multiscale'.")
