"""How much a search spends, and where: every number that the search was tuned by, with the
figure that chose it. "Problems" are 47 of ten kinds (benchmarks/kinds.py) between 64 points."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SearchBudget:
    """Points, temperatures and steps of the global search, whose lines are listed in search.py.

    Temperatures are shares of the constant of the energy, for sides of one scale.
    """

    cells: int = 100
    """Points of the clouds of lines 1 to 3, cell means of larger ones."""

    whole: int = 150
    """Points up to which these are the clouds themselves."""

    heats: tuple[float, float] = (0.05, 0.3)
    """Temperatures that random starts cool from, evenly spread; the first is no higher than the
    critical one. Of 94 problems, starts from 0.03 solve 60, and those from 0.1 or 0.2 solve 76 to
    89, not the same ones; below the critical one hyperbolic clouds end up to 10 % lower."""

    heat: float = 2.0
    """That of the other starts, of line 1, over the first of these."""

    cooling: float = 1.4
    """Ratio of two temperatures. 2 loses 10 % of the problems, 1.2 wins nothing."""

    floor: float = 1e-3
    """Temperature of the search, where the one asked for is lower: minima keep their order."""

    critical_floor: float = 0.02
    """The same, over the critical temperature, where that is lower."""

    below_critical: float = 0.5
    """Where the temperature is higher than this, over the critical one, the search is run there
    too: what it finds, warmed up, is up to 4 % lower than what cools to 12 times the critical
    one."""

    sinkhorn_steps: int = 25
    """Of each outer step. 15 are as good between points of equal weights, but between cells of
    clusters they lose 9 %."""

    marginal_tol: float = 1e-2
    """Misplaced mass at which an outer step ends."""

    cold_steps: int = 100
    """As `sinkhorn_steps`, where minima go on on finer clouds: between clusters of unequal weights
    25 are so far from a coupling that all are lost, .29 for .126."""

    exchanges: int = 12
    """Rounds of exchanges (exchange.py) where a start has cooled down, at most: these gain 99.8 %
    of what forty do. Without any, 9 of 59 problems end more than 0.1 % too high for none, 6 of
    these more than 1 %."""

    least_gain: float = 1e-6
    """Energy that an exchange must gain."""

    settling: int = 2
    """Outer steps at the last temperature."""

    ranking_steps: int = 400
    """Sinkhorn steps before minima are compared."""

    ranking_tol: float = 1e-3
    """Misplaced mass at which these end."""

    shaken: int = 12
    """Starts of a round of shaking, beside those that are kicked: with 24, 11 of 142 problems end
    more than 0.1 % too high for 14, in 12 % more time."""

    kicked: int = 24
    """Minima of a round that are kicked: the images of some points roll on among them, and pairs
    that gain trade them. With 12, 8 of 133 problems end more than 0.1 % too high for 5; with 48 as
    many as with 24."""

    kicks: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """Share of these points."""

    noises: tuple[float, ...] = (0.3, 1.0, 2.0)
    """What is added to the best minima, in shares of their size. Without the largest, 0.43 % for
    0.02 % on 100 problems."""

    nudged: int = 12
    """Minima of a round that go on at the last temperature with some noise, since some are saddles:
    without, 3 of 15 solves of graphs with twins end 1.8 to 3.6 % too high, with it one by 0.9 %."""

    nudges: tuple[float, ...] = (0.03, 0.3)
    """This noise, in shares of their size."""

    nudged_steps: int = 12
    """Outer steps that they take: a saddle is left slowly."""

    shaken_heats: tuple[float, float] = (0.1, 5.0)
    """Temperatures that they cool from, over the first of `heats`. Up to 2, 0.20 % for 0.07 %."""

    agreement: int = 3
    """Starts, before the shaking, that must have come to the lowest minimum to be trusted."""

    unsure_starts: int = 256
    """More random starts where fewer have: on 30 problems with deep valleys that few starts reach
    (digits in two views, noisy copies) the mean gap is 0.7 % with them, 3.4 % without."""

    unsure_batch: int = 64
    """Of these, as many at once on a CPU."""

    agreed_patience: int = 2
    """Rounds that find nothing lower before these end, where so many agree: with 1, 2 of 152
    problems end more than 0.1 % too high, with 2 it is 1, in 8 % more time."""

    patience: int = 4
    """The same where they do not; 6 miss as many."""

    rounds: int = 32
    """Of shaking, at most: samples in 20 dimensions have minima without number, and need them."""

    shaken_pairs: int = 7_000_000
    """Entries of the plans of all rounds together, on a CPU: two seconds in few axes, six in 200.
    More random starts have half as many."""

    fused_batch: int = 4
    """Times as many starts in a round on a GPU, where these take as long as one."""

    flipped_axes: int = 3
    """Leading axes whose signs are tried, 2³ of them."""

    blurs: tuple[float, ...] = (1e-1, 1e-3)
    """Temperatures of matched distance profiles, in shares of their mean gap."""

    kept: int = 6
    """Distinct minima that are shaken, and looked at on finer clouds."""

    same_gamma: float = 0.1
    """Relative distance of two Γ that count as one, entries in units of √(σ_d σ_e)."""

    near_gamma: float = 0.1
    """The same of an end of a start and the minimum that it has come to."""

    same_value: float = 0.01
    """Relative gap of the values of such two, with their marginals met: where minima are without
    number, many have the same Γ within a tenth."""

    looked_at: int = 8
    """Ends near the lowest minimum of which the value is compared with its."""

    lost_variance: float = 0.1
    """Share of the variance within cells from which cells do not resemble the cloud: the first of
    the finer clouds is taken instead, and on the second the starts that are not random are cooled
    too. Shapes lose 0.01, words in 50 dimensions 0.2 to 0.4."""

    finer: tuple[tuple[int, float], ...] = ((400, 0.15), (1000, 0.01))
    """Points of finer clouds, and the relative gap of energies that these cannot tell. With 1 % at
    400 points, 5 of 78 solves ended up to 5.6 % too high."""

    tie_points: int = 5000
    """Points on which a tie is decided, at most."""

    tie_steps: int = 8
    """Outer steps there, at most."""

    reflected: int = 0
    """Minima on the first of the finer clouds of which singular directions are turned over
    (hand.py): none for clouds, where that finds nothing lower."""

    reflected_axes: int = 5
    """How many of these directions, in all combinations, also with all others turned over: without
    these, 3 of 8 searches between bodies did not meet the right match."""

    mirror_gap: float = 0.05
    """Relative gap of energies within which left and right may decide (Search(chirality=True));
    between meshes that have two sides they always do, where they are clear."""

    def between_surfaces(self) -> SearchBudget:
        """That of a search between meshes with two sides, which tells more minima apart: those that
        exchange front and back of limbs have nearly the same Γ, and are lower by 1 %."""
        return replace(self, mirror_gap=math.inf, same_gamma=0.03, kept=10, reflected=2)

    def patience_of(self, fused: bool, agreed: bool) -> int:
        """Rounds without anything lower before they end; half as many on a GPU, where a round has
        `fused_batch` times as many starts."""
        patience = self.agreed_patience if agreed else self.patience
        return (patience + 1) // 2 if fused else patience

    def rounds_of(self, fused: bool, entries: int) -> int:
        """How many rounds there may be where plans have so many entries: two at the least, if any.
        Starts that are kicked or nudged are cold, and take half as long as others."""
        affordable = self.shaken_pairs // (entries * (2 * self.shaken + self.kicked + self.nudged) // 2)
        return self.rounds if fused else min(self.rounds, max(2, affordable))

    def more_starts(self, fused: bool, entries: int) -> list[int]:
        """How many more random starts of so many entries of their plans there may be, in batches
        after each of which the lowest may have been met often enough."""
        most = self.unsure_starts if fused else min(self.unsure_starts, self.shaken_pairs // (2 * entries))
        batch = most if fused else self.unsure_batch
        return [min(batch, most - k) for k in range(0, most, batch)]


@dataclass(frozen=True)
class RelaxedBudget:
    """The same for the search where marginals are not fixed (relaxed.py)."""

    cells: int = 100
    """Points of the small clouds, cell means of larger ones."""

    whole: int = 150
    """Points up to which these are the clouds themselves."""

    hot: float = 0.1
    """The first temperature, over twice the root of the product of both E c²."""

    warm: float = 0.01
    """The first one of landmarks, which higher ones would forget."""

    floor: float = 5e-4
    """The last one, where the one asked for is lower."""

    cooling: float = 1.6
    """Ratio of two temperatures."""

    races: tuple[int, int] = (3, 6)
    """Steps after each of which only the lowest go on."""

    racers: float = 0.4
    """The share that does."""

    settling: int = 4
    """Outer steps at the last temperature."""

    sinkhorn_steps: int = 25
    """Of each outer step."""

    entries: int = 1 << 20
    """Of plans that cool side by side on a CPU."""

    soft: float = 0.006
    """What KL of a marginal that is not fixed costs in the search, at least, in units of `hot`."""

    flipped_axes: int = 3
    """Leading axes of the whole clouds whose signs are tried."""

    landmarks: int = 12
    """Points of a side, far from each other, from which landmarks are chosen."""

    landmark_sets: int = 6
    """Choices of three of either side: the farthest, and in turns some of these, and any."""

    images: int = 32
    """Points of the other side that may be their images."""

    landmark_starts: int = 32
    """Images of each choice that become starts."""

    cuda_times: int = 4
    """As many of them on a GPU, where a batch of starts takes about as long as one."""

    kept: int = 6
    """Plans that go on alone until they settle."""

    settled_steps: int = 20
    """Outer steps of each of these at one temperature, at most."""

    tol: float = 1e-4
    """Of these, as in `Loop`, where marginals have no caps."""

    gap: float = 0.15
    """How far above the lowest of the starts they may be, relatively, without caps."""

    same: float = 0.3
    """Mass in which two plans of which one goes on differ, at least."""
