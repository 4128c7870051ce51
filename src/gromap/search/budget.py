"""How much a search spends, and where: every number that the search was tuned by, with the
figure that chose it. "Problems" are 47 of ten kinds (benchmarks/kinds.py) between 64 points."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Of each outer step. 10 are as good on most, 5 are not."""

    marginal_tol: float = 1e-2
    """Misplaced mass at which an outer step ends."""

    settling: int = 2
    """Outer steps at the last temperature."""

    ranking_steps: int = 400
    """Sinkhorn steps before minima are compared."""

    ranking_tol: float = 1e-3
    """Misplaced mass at which these end."""

    shaken: int = 24
    """Starts of a round of shaking. With 12, in twice as many rounds, the mean gap to the lowest
    minimum known is 0.13 % for 0.03 %, on 52 of the hardest problems."""

    noises: tuple[float, ...] = (0.3, 1.0, 2.0)
    """What is added to the best minima, in shares of their size. Without the largest, 0.43 % for
    0.02 % on 100 problems."""

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
    """Rounds that find nothing lower before these end, where so many agree: with 1, 22 of 216 hard
    problems end more than 0.1 % too high, with 2 it is 19; without any, five times as many."""

    patience: int = 6
    """The same where they do not; 4 miss one problem more."""

    rounds: int = 12
    """Of shaking, at most."""

    shaken_pairs: int = 7_000_000
    """Entries of the plans of all rounds together, on a CPU: about a second. More random starts
    have half as many."""

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

    mirror_gap: float = 0.05
    """Relative gap of energies within which left and right may decide (Search(chirality=True))."""

    def rounds_of(self, fused: bool, entries: int) -> int:
        """How many rounds of so many entries of plans each may be run: two at the least, if any."""
        return self.rounds if fused else min(self.rounds, max(2, self.shaken_pairs // entries))

    def more_starts(self, fused: bool, entries: int) -> list[int]:
        """How many more random starts of so many entries of their plans there may be, in batches
        after each of which the lowest may have been met often enough."""
        most = self.unsure_starts if fused else min(self.unsure_starts, self.shaken_pairs // (2 * entries))
        batch = most if fused else self.unsure_batch
        return [min(batch, most - k) for k in range(0, most, batch)]
