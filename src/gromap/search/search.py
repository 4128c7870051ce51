"""The global search: GW is not convex, and its local minima are the near-symmetries of the two
shapes.

Γ is a tiny matrix that does not know the support of the measures, so many starts are cooled as one
batch on coarse clouds (anneal.py):

    1  Γ = 0; points matched by their sorted distances to all others (Mémoli's third lower bound),
       or by their order, where there are as many; if one of these is as good as a match of each
       side with itself, that is all (bound.py)
       diag(±σ) on the leading axes, σ_d the largest correlation of both d-th axes; random Γ
    2  all of them cool down, random ones from temperatures of their own; and many more random
       ones, where few have come to the lowest minimum; where a start has cooled down, pairs of
       points trade their images as long as that gains (exchange.py)
    3  in rounds, the best minima are shaken, heated and cool down again; are nudged, since some are
       saddles; and are kicked, images of some points rolling on among these (moves.py); until some
       rounds have found nothing lower; around the critical temperature once more below it, and
       warmed up
    4  the best on finer clouds; those that stay close to the lowest, on still finer ones
    5  down to the temperature asked for, and those that are close to a tie on the points

Values are those of couplings with exact marginals. How many points, starts and steps each line
takes is in budget.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gromap import _check, _options
from gromap._solution import Interrupted, State
from gromap.geometry.measure import own_generator
from gromap.search.anneal import SmallPair
from gromap.search.bound import at_bound
from gromap.search.budget import RelaxedBudget, SearchBudget
from gromap.search.chirality import handedness
from gromap.search.hand import Hand, keep_hand, reflections, within
from gromap.search.moves import kicked, shaken
from gromap.search.proposals import paired, profile_scores, random_starts, sign_flips
from gromap.search.relaxed import relaxed_start
from gromap.search.small import Cooled
from gromap.search.start_plan import start_plan
from gromap.solvers.embedded import CntProblem
from gromap.solvers.loop import alternate
from gromap.solvers.protocol import Begin, Loop, Minima, Problem
from gromap.solvers.relaxed import RelaxedProblem
from gromap.transport import Dense
from gromap.transport.marginals import half_step
from gromap.transport.sinkhorn import Potentials, Sinkhorn

SAME_ENERGY = 1e-3  # relative gap of minima of which it does not matter which one is found
UNSURE = (
    "hardly any start of the search came to its lowest minimum, so that a lower one may exist: try "
    "init=gromap.Search(starts=200), another seed, or a larger epsilon."
)


@dataclass(frozen=True)
class Search:
    """Options of the global search: `init="auto"` is `init=Search()`.

    starts: random Γ, beside the others; with 0, nothing is shaken either.  chirality: GW itself
    cannot tell a shape from its mirror image. True: among minima within 5 % of the best, leave out
    those that exchange left and right, for clouds in space; of two meshes that have two sides,
    among all of them. None: for such meshes only. False: never.
    budget: all other numbers.
    """

    starts: int = 16
    chirality: bool | None = None
    budget: SearchBudget = SearchBudget()

    on_all_points = False

    def __post_init__(self) -> None:
        _options.whole(self.starts, "starts", 0)

    def begin(self, problem: Problem, coarse: Problem, loop: Loop) -> Begin:
        seed = problem.pair.seed if problem.pair is not None else 0
        if problem.relaxed:
            return self._begin_relaxed(problem, coarse, loop, seed)
        pair, search = problem.pair, self
        two_sided = pair is not None and pair.x.normals is not None and pair.y.normals is not None
        if two_sided:
            search = replace(self, budget=self.budget.between_surfaces())
        told = two_sided if self.chirality is None else self.chirality
        hand = handedness(problem.embedded) if told else None
        gamma, duals, minima = best_start(coarse.embedded, loop.rough(), seed, search, hand)
        if problem.primal:
            plan = start_plan(problem.embedded, gamma, duals, loop)
            return Begin(problem.start(gamma, plan), problem.zero_potentials(), minima)
        return Begin(coarse.start(gamma), duals, minima)

    def _begin_relaxed(self, problem: Problem, coarse: Problem, loop: Loop, seed: int) -> Begin:
        embedded = coarse.embedded
        assert isinstance(embedded, RelaxedProblem)
        state, duals, minima = relaxed_start(embedded, loop, seed, self.starts, RelaxedBudget())
        if not problem.primal:
            return Begin(state, duals, minima)
        plan = embedded.plan(embedded.score_to(embedded, state), duals.f, duals.g)
        return Begin(problem.start(state.G, plan), problem.zero_potentials(), minima)


def best_start(
    problem: CntProblem, loop: Loop, seed: int = 0, search: Search | None = None, hand: Hand | None = None
) -> tuple[Tensor, Potentials, Minima | None]:
    """The lowest minimum of the search, with potentials for all points, and the distinct minima
    that were met, at the temperature of the search; None where there is one.

    hand: decides among minima that are nearly equal.
    """
    search = search or Search()
    if problem.alpha == 0:  # features alone: one minimum
        return problem.x.new_zeros(problem.x.shape[1], problem.y.shape[1]).double(), problem.zero_potentials(), None
    if not bool((problem.a > 0).all() and (problem.b > 0).all()):  # points without mass have no say
        support = problem.coarser(len(problem.a), len(problem.b))
        gamma, duals, minima = best_start(support, loop, seed, search, hand)
        return gamma, support.interpolate(gamma, duals, problem), minima
    budget = search.budget
    here = coarsened(problem, budget.cells) if _points(problem) > budget.whole else problem
    pair = SmallPair(here, torch.float32)
    if pair.lost_variance(problem) > budget.lost_variance:
        here = coarsened(problem, budget.finer[0][0])
        pair = SmallPair(here, torch.float32)
    gamma, minima = problem.x.new_zeros(problem.x.shape[1], problem.y.shape[1]).double(), None
    if not problem.eps < pair.heat * pair.unit:  # so hot, or features count so much, that there is one minimum
        return gamma, problem.zero_potentials(), minima
    floor = min(budget.floor, budget.critical_floor * pair.critical) * pair.heat
    eps = max(problem.eps / pair.unit, floor) * pair.unit
    try:
        rows = paired(problem.x, problem.y, problem.a, problem.b)
        found, count = lowest(pair, eps / pair.unit, seed, search, rows, stop=hand is None)  # 1 to 3
        minima = _minima(pair, found, count, eps)
        for k, (points, gap) in enumerate(budget.finer):  # 4
            if here is not problem and (len(minima) > 1 or k == 0):
                before, alike = here, k == 0 or pair.lost_variance(problem) <= budget.lost_variance
                here = here if _points(here) >= min(points, _points(problem)) else coarsened(problem, points)
                pair, gap = SmallPair(here, torch.float32), max(gap, budget.mirror_gap if hand else 0.0)
                minima = _look(pair, before, minima, eps, gap, budget, alike)
                if budget.reflected and k == 0:
                    minima = _with_reflections(pair, minima, eps, budget)
        if hand is not None:
            minima = keep_hand(here.at(eps), minima, hand, budget.mirror_gap)
        if float(minima.count[minima.energy <= within(minima.energy, SAME_ENERGY)].sum()) < budget.agreement:
            _check.warn(UNSURE)
        return (*_settled(problem, here, minima, eps, loop, budget), minima)  # 5
    except KeyboardInterrupt:
        raise Interrupted(State(gamma if minima is None else minima.gamma[0])) from None


def lowest(
    pair: SmallPair, eps: float, seed: int, search: Search, rows: Tensor | None = None, stop: bool = False
) -> tuple[Cooled, Tensor]:
    """Lines 1 to 3: distinct minima at a temperature, the lowest first, and how many starts went
    to each.

    rows: linear maps of the problem to start from as well.  stop: whether a match as good as those
    of each side with itself is all; left and right are told apart among several.
    """
    budget, known = search.budget, known_starts(pair, search.budget, rows)
    ends = _quenched(pair, known, eps, budget)
    found = at_bound(pair, ends, eps, SAME_ENERGY, budget) if stop else None
    if found is not None:
        return found, torch.tensor([float(budget.agreement)])
    here, cold = hunt(pair, eps, seed, search, known, ends), budget.below_critical * pair.critical * pair.heat
    if not cold < eps:
        return here
    below = hunt(pair, cold, seed, search, known, _quenched(pair, known, cold, budget))
    return warmed(pair, here, below, eps, budget)


def _quenched(pair: SmallPair, gamma: Tensor, eps: float, budget: SearchBudget) -> Cooled:
    return pair.cool(gamma, torch.zeros(len(gamma)), eps, budget)


def hunt(pair: SmallPair, eps: float, seed: int, search: Search, known: Tensor, ends: Cooled) -> tuple[Cooled, Tensor]:
    """The same at this temperature only, where known starts end as given."""
    budget = search.budget
    low, high = min(budget.heats[0], pair.critical), budget.heats[1]
    flips = sign_flips(*pair.spread, budget.flipped_axes)[1:].to(pair.x)

    def random(count: int, seed: int) -> tuple[Tensor, Tensor]:
        starts = random_starts(*pair.spread, count, seed).to(pair.x)
        return starts, low * (high / low) ** torch.linspace(0, 1, len(starts))

    some, hot = random(search.starts, seed)
    slow = torch.cat([known[:1], known, flips])
    hot = torch.cat([torch.tensor([high]), torch.full((len(slow) - 1,), budget.heat * low), hot])
    ends = ends.join(pair.cool(torch.cat([slow, some]), hot, eps, budget))
    found = pair.ranked(ends, eps, budget, budget.kept)
    for batch, size in enumerate(budget.more_starts(pair.fused, len(pair.a) * len(pair.b)) if search.starts else []):
        if float(pair.count(found, ends, eps, budget)[0]) >= budget.agreement:
            break
        others = pair.cool(*random(size, seed + 1 + batch), eps, budget)
        found = pair.best(found.join(pair.ranked(others, eps, budget, budget.kept)), budget)
        ends = ends.join(others)
    if search.starts > 0:
        found, ends = shake(pair, found, ends, low, eps, seed, budget)
    return found, pair.count(found, ends, eps, budget)


def shake(
    pair: SmallPair, found: Cooled, ends: Cooled, low: float, eps: float, seed: int, budget: SearchBudget
) -> tuple[Cooled, Cooled]:
    """Line 3: the best minima after rounds of moves, and all ends of starts: of those that were
    moved, the ones that have come to another minimum.

    low: the least of the temperatures that random starts cool from.
    """
    generator, (least, most) = own_generator(seed + 1), budget.shaken_heats
    times, quiet, long = budget.fused_batch if pair.fused else 1, 0, replace(budget, settling=budget.nudged_steps)
    for _ in range(budget.rounds_of(pair.fused, len(pair.a) * len(pair.b))):
        lowest = float(found.value[0])
        starts, parents = shaken(pair, found, times * budget.shaken, budget.noises, generator)
        hot = low * least * (most / least) ** torch.rand(len(starts), generator=generator)
        found, ends = _after(pair, pair.cool(starts, hot, eps, budget), parents, found, ends, eps, budget)
        starts, parents = shaken(pair, found, times * budget.nudged, budget.nudges, generator)
        end = pair.cool(starts, torch.zeros(len(starts)), eps, long, found.g[parents])
        found, ends = _after(pair, end, parents, found, ends, eps, budget)
        starts, g, parents = kicked(pair, found, times * budget.kicked, eps, budget, generator)
        end = pair.cool(starts, torch.zeros(len(starts)), eps, budget, g)
        found, ends = _after(pair, end, parents, found, ends, eps, budget)
        quiet = quiet + 1 if float(found.value[0]) > lowest - SAME_ENERGY * abs(lowest) else 0
        agreed = float(pair.count(found, ends, eps, budget)[0]) >= budget.agreement
        if quiet >= budget.patience_of(pair.fused, agreed):
            break
    return found, ends


def _after(
    pair: SmallPair, end: Cooled, parents: Tensor, found: Cooled, ends: Cooled, eps: float, budget: SearchBudget
) -> tuple[Cooled, Cooled]:
    """The best minima after some have been left for others, and all ends with those that came to
    another one."""
    ends = ends.join(end.take(pair.nearest(end.gamma, found.gamma) != parents))
    return pair.best(found.join(pair.ranked(end, eps, budget, budget.kept)), budget), ends


def warmed(
    pair: SmallPair, here: tuple[Cooled, Tensor], below: tuple[Cooled, Tensor], eps: float, budget: SearchBudget
) -> tuple[Cooled, Tensor]:
    """Minima at a temperature around the critical one, and those from a lower one: plans with
    and without order are both minima there, and starts that cool find those without."""
    (found, few), (colder, many) = here, below
    ends = found.join(pair.cool(colder.gamma, torch.zeros(len(colder.gamma)), eps, budget, colder.g))
    found, count = pair.ranked(ends, eps, budget, budget.kept), torch.cat([few, many])
    return found, count.new_zeros(len(found.gamma)).index_add_(0, pair.nearest(ends.gamma, found.gamma), count)


def known_starts(pair: SmallPair, budget: SearchBudget, rows: Tensor | None = None) -> Tensor:
    """Γ = 0, matched profiles, and other known maps.  (S, D, E)"""
    zero = pair.x.new_zeros(1, pair.x.shape[1], pair.y.shape[1])
    alike = profile_scores(pair.x, pair.y, pair.a, pair.b, budget.blurs)
    if pair.problem.fused is not None:  # and points by their features alone
        cost = pair.problem.fused.cost().to(alike)
        mean = float(pair.a @ cost @ pair.b)
        alike = torch.cat([alike, torch.stack([-cost / max(blur * mean, 1e-30) for blur in budget.blurs])])
    known = torch.cat([zero, pair.clouds.matched(alike, budget.sinkhorn_steps, budget.marginal_tol)])
    return known if rows is None else torch.cat([known, pair.units(rows)])


def coarsened(problem: CntProblem, points: int) -> CntProblem:
    """At most so many cells of each side, or the problem itself."""
    return problem if _points(problem) <= points else problem.coarser(points, points)


def _points(problem: CntProblem) -> int:
    return max(len(problem.a), len(problem.b))


def _look(
    pair: SmallPair, before: CntProblem, minima: Minima, eps: float, gap: float, budget: SearchBudget, alike: bool
) -> Minima:
    """Line 4: where minima end on finer clouds, those within a relative gap of the lowest.

    alike: whether the coarser clouds resembled them, so that other starts need not be tried here.
    """
    cold, across = eps / pair.unit, _score(minima.gamma, before, pair.problem, eps).mT
    starts, g = pair.units(minima.gamma), half_step(across, before.log_a, minima.f).to(pair.x) * cold  # Interpolate
    hot = starts.new_full((len(starts),), cold / pair.heat)
    if not alike:
        known = known_starts(pair, budget)
        others = torch.cat([known[:1], known, known])  # slowly, and as they are
        middle = budget.heat * min(budget.heats[0], pair.critical)
        heats = [budget.heats[1], *[middle] * len(known), *[0.0] * len(known)]
        starts, hot = torch.cat([starts, others]), torch.cat([hot, hot.new_tensor(heats)])
        g = torch.cat([g, pair.clouds.copy_potential.expand(len(others), -1)])
    patient = replace(budget, sinkhorn_steps=budget.cold_steps)
    found = pair.ranked(pair.cool(starts, hot, cold, patient, g), cold, budget, budget.kept)
    found = found.take(slice(int((found.value <= within(found.value, gap)).sum())))
    count = minima.count[pair.nearest(found.gamma, pair.units(minima.gamma))]
    return _minima(pair, found, count, eps)


def _with_reflections(pair: SmallPair, minima: Minima, eps: float, budget: SearchBudget) -> Minima:
    """The best minima with those that their reflections lead to, which as many starts stand for."""
    cold, gamma = eps / pair.unit, pair.units(minima.gamma)
    ends = _quenched(pair, reflections(gamma, pair.axes.to(pair.x), budget), cold, budget)
    known = Cooled(gamma, minima.g.to(pair.x) * cold, minima.energy / pair.unit)
    best = pair.best(known.join(pair.ranked(ends, cold, budget, budget.kept)), budget)
    reflected = minima.count[: budget.reflected]
    count = torch.cat([minima.count, reflected.repeat_interleave(len(ends.gamma) // len(reflected))])
    return _minima(pair, best, count[pair.nearest(best.gamma, torch.cat([gamma, ends.gamma]))], eps)


def _score(gamma: Tensor, rows: CntProblem, cols: CntProblem, eps: float) -> Dense:
    """-C_Γ / ε between small clouds, for a batch of Γ, written down: no factors are needed.
    (B, N, M)"""
    share = rows.alpha / eps
    product = 16 * share * rows.x.double() @ gamma @ cols.y.double().mT
    product = product + 4 * share * rows.x_norms.double()[:, None] * cols.y_norms
    if rows.fused is not None:
        product = product + rows.fused.score(eps, cols.fused).dense()
    return Dense(product.to(rows.x))


def _minima(pair: SmallPair, found: Cooled, count: Tensor, eps: float) -> Minima:
    """Minima in the units of the problem, with potentials in nats at a temperature."""
    gamma, g, here = pair.back(found.gamma), found.g.to(pair.problem.b) * (pair.unit / eps), pair.problem
    f = half_step(_score(gamma, here, here, eps), here.log_b, g)
    return Minima(gamma, found.value * pair.unit, f, g, count)


def _settled(
    problem: CntProblem, here: CntProblem, minima: Minima, eps: float, loop: Loop, budget: SearchBudget
) -> tuple[Tensor, Potentials]:
    """Line 5: Γ of the lowest, with potentials on all points, at the temperature asked for."""
    near = int((minima.energy <= within(minima.energy, budget.finer[-1][1])).sum())
    gamma, g = minima.gamma[:near], minima.g[:near]
    if problem.eps < eps:  # minima may change places on the way down
        gamma, g = minima.gamma, minima.g
        pair = SmallPair(here, torch.float64)
        slow = replace(budget, cooling=2.0, sinkhorn_steps=budget.ranking_steps, marginal_tol=budget.ranking_tol)
        starts, hot = pair.units(gamma), gamma.new_full((len(gamma),), 2 * eps / pair.unit / pair.heat)
        cold = pair.cool(starts, hot, problem.eps / pair.unit, slow, g.double() * (eps / pair.unit))
        cold = pair.ranked(cold, problem.eps / pair.unit, slow, len(gamma))
        cold = cold.take(slice(int((cold.value <= within(cold.value, budget.finer[-1][1])).sum())))
        gamma, g = pair.back(cold.gamma), cold.g.to(g) * (pair.unit / problem.eps)
    duals = Potentials(half_step(_score(gamma, here, here, problem.eps), here.log_b, g), g)
    if len(gamma) > 1:
        there = coarsened(problem, budget.tie_points)
        settle = replace(loop, sinkhorn=Sinkhorn(50, tol=2e-3), adaptive=False, max_iter=budget.tie_steps)
        duals = duals if here is there else here.interpolate(gamma, duals, there)
        (gamma, duals), here = _lowest(there, gamma, duals, settle), there
    gamma, duals = gamma[0], Potentials(duals.f[0], duals.g[0])
    return gamma, duals if here is problem else here.interpolate(gamma, duals, problem)


def _lowest(problem: CntProblem, gamma: Tensor, duals: Potentials, loop: Loop) -> tuple[Tensor, Potentials]:
    """Where those starts end, the lowest first.

    They run as one batch, unless tiles may be left out, which batches cannot.
    """
    if problem.grid is None:
        ends = alternate(problem, Begin(gamma, duals), loop)
        gamma, energy, f, g = ends.gamma, ends.energy, ends.duals.f, ends.duals.g
    else:
        begins = (Begin(gamma[k], Potentials(duals.f[k], duals.g[k])) for k in range(len(gamma)))
        each = [alternate(problem, begin, loop) for begin in begins]
        parts = ((end.gamma, end.energy, end.duals.f, end.duals.g) for end in each)
        gamma, energy, f, g = (torch.stack(z) for z in zip(*parts, strict=True))
    order = energy.nan_to_num(nan=torch.inf).argsort(stable=True)
    return gamma[order], Potentials(f[order], g[order])
