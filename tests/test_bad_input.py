"""Every bad input gets a message that says what was given, what is expected and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import gromap
from gromap import Space, solve

X, Y = np.random.default_rng(0).normal(size=(12, 3)), np.random.default_rng(1).normal(size=(9, 2))


def spoil(x, value):
    x = x.copy()
    x[3, 1] = value
    return x


MATRIX = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))

PAIR = X[:, 0], Y[:, 0]
CASES = {
    "a reach below zero": (lambda: solve(X, Y, reach=-0.1), "reach must be a number >= 0"),
    "a reach of NaN": (lambda: solve(X, Y, reach=(None, np.nan)), "reach must be a number >= 0.*nan"),
    "three reaches": (lambda: solve(X, Y, reach=(1, 2, 3)), "a pair for X and for Y, got 3"),
    "a mass of zero": (lambda: solve(X, Y, mass=0), "mass is the share of the lighter side.*got 0"),
    "a mass above one": (lambda: solve(X, Y, mass=1.2), "mass is the share.*to 1, got 1.2"),
    "mass with reach": (lambda: solve(X, Y, mass=0.5, reach=0.1), "reach and mass both"),
    "features of the wrong length": (lambda: solve(X, Y, features=(X, X)), "the features of Y.*9 of them.*12, 3"),
    "features of NaN": (lambda: solve(X, Y, features=(PAIR[0] * np.nan, PAIR[1])), r"features\[0\] has NaN"),
    "constant features": (lambda: solve(X, Y, features=(np.ones(12), np.ones(9))), "all features are equal"),
    "features of one side": (lambda: solve(X, Y, features=(PAIR[0], None)), "missing on one side"),
    "features that do not compare": (lambda: solve(X, Y, features=(X, Y)), "3 columns, and those of Y 2"),
    "features that are no pair": (lambda: solve(X, Y, features=X), "features are a pair"),
    "alpha above one": (lambda: solve(X, Y, features=PAIR, alpha=1.5), "from 0 to 1, got 1.5"),
    "alpha without features": (lambda: solve(X, Y, alpha=0.3), "pass features="),
    "reach for a method without": (lambda: solve(X, Y, reach=0.1, method="entropic"), "knows no features= and neither"),
    "NaN points": (lambda: solve(spoil(X, np.nan), Y), "X has NaN or infinite values in 1 row.*row 3"),
    "inf points": (lambda: solve(X, spoil(Y, np.inf)), "Y has NaN or infinite"),
    "NaN weights": (lambda: solve(X, Y, a=np.full(12, np.nan)), "a has NaN"),
    "empty": (lambda: solve(np.zeros((0, 3)), Y), "X is empty"),
    "one point": (lambda: solve(X, Y[:1]), "Y has a single point"),
    "no coordinates": (lambda: solve(np.zeros((5, 0)), Y), "without coordinates"),
    "NaN as the weights": (lambda: solve(X, Y, a=np.nan), "a is nan"),
    "a NaN among the weights": (lambda: solve(X, Y, b=[np.nan] + [1.0] * 8), "b has NaN.*row 0"),
    "weights in a column": (lambda: solve(X, Y, a=np.ones((12, 1))), r"shape \(12,\), got \(12, 1\)"),
    "a word for weights": (lambda: solve(X, Y, a="uniform"), "a must be a numeric array.*str"),
    "one point on both sides": (lambda: solve(X[:1], Y[:1]), "X has a single point.*at least 2"),
    "one point in a space": (lambda: Space(X[:1]), "X has a single point"),
    "negative weights": (lambda: solve(X, Y, b=np.r_[-1.0, np.ones(8)]), "b has negative weights.*index 0"),
    "zero weights": (lambda: solve(X, Y, a=np.zeros(12)), "a is zero everywhere"),
    "all mass on one point": (lambda: solve(X, Y, a=np.eye(12)[0]), "positive weight.* has a single point"),
    "weights of a matrix": (lambda: Space.from_costs(MATRIX, a=-np.ones(5)), "a has negative weights"),
    "weights of the wrong length": (
        lambda: solve(X, Y, a=np.ones(9)),
        r"a must have one weight per point of X, shape \(12,\)",
    ),
    "a single number": (lambda: solve(X.astype("f4"), np.array(3, "f4")), r"Y must have shape \(N, d\).*got \(\)"),
    "one-dimensional points": (lambda: solve(X[:, 0], Y), r"X must have shape \(N, d\).*X\[:, None\]"),
    "three-dimensional points": (lambda: solve(X[None], Y), r"got \(1, 12, 3\)"),
    "strings": (lambda: solve(np.array([["a", "b"]] * 3), Y), "must be a numeric array"),
    "objects": (lambda: solve({"points": 3}, Y), "must be a numeric array.*dict"),
    "numbers as objects": (lambda: solve(X.astype(object), Y), r"dtype object.*X\.astype\(float\)"),
    "rows of different lengths": (
        lambda: solve(X, [[1.0, 2.0], [3.0]]),
        "Y must be a numeric array.*a list.*inhomogeneous",
    ),
    "masked entries": (lambda: solve(np.ma.masked_array(X, X > 1), Y), "some entries of X are masked"),
    "masked weights": (lambda: solve(X, Y, b=np.ma.masked_array(np.ones(9), Y[:, 0] > 0)), "entries of b are masked"),
    "masked costs": (lambda: Space.from_costs(np.ma.masked_array(MATRIX, MATRIX > 3)), "entries of C are masked"),
    "masked rows in a list": (lambda: solve([np.ma.masked_array(z, z > 1) for z in X], Y), "entries of X are masked"),
    "nothing": (lambda: solve(None, Y), "X must be a numeric array.*NoneType"),
    "complex": (lambda: solve(X + 1j, Y), "complex"),
    "epsilon zero": (lambda: solve(X, Y, epsilon=0), "epsilon must be a finite number > 0, got 0"),
    "epsilon negative": (lambda: solve(X, Y, epsilon=-1.0), "epsilon must be"),
    "epsilon not a number": (lambda: solve(X, Y, epsilon="small"), "epsilon must be a number > 0"),
    "epsilon NaN": (lambda: solve(X, Y, epsilon=float("nan")), "epsilon must be"),
    "epsilon infinite": (lambda: solve(X, Y, epsilon=np.inf), "epsilon must be a finite number > 0, got inf"),
    "epsilon in quotes": (lambda: solve(X, Y, epsilon="0.1"), "epsilon must be a number > 0, got '0.1'"),
    "epsilon of a matrix": (lambda: solve(MATRIX, MATRIX, cost="precomputed", epsilon=0), "epsilon must be"),
    "epsilon true": (lambda: solve(X, Y, epsilon=True), "epsilon must be a number > 0, got True"),
    "sharpen": (lambda: solve(X, Y, sharpen="yes"), "sharpen must be True, False, or None"),
    "epsilon of a loss": (lambda: gromap.GromovLoss(epsilon=-1.0), "epsilon must be a finite number > 0, got -1"),
    "epsilon of a loss, NaN": (lambda: gromap.GromovLoss(epsilon=np.nan), "epsilon must be a finite number > 0"),
    "epsilon of a loss, a word": (lambda: gromap.GromovLoss(epsilon="auto"), "epsilon must be a number > 0"),
    "dim too large": (lambda: solve(X, Y, dim=10), "dim = 10 axes for the 9 points of Y"),
    "dim zero": (lambda: Space(X, dim=0), "1 <= dim <= 12"),
    "dim share above one": (lambda: Space(X, dim=1.5), r"share of variance to keep, in \(0, 1\)"),
    "dim of the wrong type": (lambda: Space(X, dim="20"), "dim must be 'auto', an int"),
    "three dims": (lambda: solve(X, Y, dim=(2, 3, 4)), "a pair"),
    "asymmetric matrix": (lambda: Space.from_costs(MATRIX + np.triu(MATRIX)), "not symmetric"),
    "non-zero diagonal": (lambda: Space.from_costs(MATRIX + 1), "non-zero diagonal"),
    "a diagonal of ones": (
        lambda: solve(MATRIX, MATRIX + np.eye(5), cost="precomputed"),
        r"Y has a non-zero diagonal \(up to 1\).*np\.fill_diagonal\(Y, 0\)",
    ),
    "half a matrix": (lambda: solve(np.triu(MATRIX), MATRIX, cost="precomputed"), r"not symmetric.*use X \+ X\.T"),
    "NaN costs": (lambda: Space.from_costs(spoil(MATRIX, np.nan)), r"C has NaN in 1 of its 25 entries.*\[3, 1\]"),
    "costs of -inf": (lambda: Space.from_costs(spoil(MATRIX, -np.inf)), "-inf"),
    "a matrix of one point": (lambda: Space.from_costs(np.zeros((1, 1))), "C has a single point"),
    "a matrix that is no matrix": (lambda: solve(MATRIX, MATRIX[None], cost="precomputed"), "square.*1, 5, 5"),
    "an object from a bad matrix": (lambda: gromap.Precomputed(MATRIX + np.triu(MATRIX)), "C is not symmetric"),
    "matrices for a loss": (lambda: gromap.GromovLoss(cost="precomputed"), r"Space\.from_costs\(C\)"),
    "edges as costs": (
        lambda: solve(scipy.sparse.csr_array(MATRIX == 1), MATRIX, cost="precomputed"),
        r"X is sparse and holds 8 of its 20 costs.*shortest_path\(X, directed=False\).*X\.toarray\(\)",
    ),
    "edges as costs in float32": (
        lambda: solve(MATRIX, scipy.sparse.coo_matrix((MATRIX == 1).astype("f4")), cost="precomputed"),
        "Y is sparse and holds 8 of its 20 costs",
    ),
    "edges as a sparse tensor": (
        lambda: Space.from_costs(torch.from_numpy(np.where(MATRIX == 1, 1.0, 0.0)).to_sparse()),
        r"C is sparse.*C\.to_dense\(\)",
    ),
    "edges as finite costs": (
        lambda: Space.from_costs(np.where(MATRIX <= 1, MATRIX, np.inf)),
        r"C has 12 infinite costs, some between points that finite ones connect.*shortest_path\(C",
    ),
    "negative costs": (lambda: Space.from_costs(-MATRIX), "negative costs"),
    "matrix not square": (lambda: Space.from_costs(MATRIX[:3]), "square matrix"),
    "unknown cost": (lambda: solve(X, Y, cost="euclidian"), "did you mean 'euclidean'"),
    "unknown method": (lambda: solve(X, Y, method="kernal"), "did you mean 'kernel'"),
    "method of the wrong type": (lambda: solve(X, Y, method=3), "method must be one of"),
    "unknown scale": (lambda: solve(X, Y, scale="jont"), "did you mean 'joint'"),
    "unknown init": (lambda: solve(X, Y, init="zeros"), "did you mean 'zero'"),
    "init of the wrong shape": (lambda: solve(X, Y, dim=(4, 3), init=np.ones((3, 4))), r"shape \(4, 3\).*got \(3, 4\)"),
    "max_iter zero": (lambda: solve(X, Y, max_iter=0), "max_iter must be an integer >= 1"),
    "tol zero": (lambda: solve(X, Y, tol=0), "tol must be"),
    "space with weights": (lambda: solve(Space(X), Y, a=np.ones(12)), "X is a Space"),
    "spaces of two precisions": (lambda: solve(Space(X.astype("f4")), Space(Y)), "one precision"),
    "new points of the wrong dimension": (lambda: Space(X).project(Y), "2 coordinates, the space has 3"),
    "loop options": (lambda: gromap.Loop(max_iter=0), "max_iter >= 1"),
    "nystrom options": (lambda: gromap.Nystrom(landmarks=1), "landmarks >= 2"),
    "annealing options": (lambda: gromap.Annealing(start=0.5), "start >= 1"),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_typos_in_keywords_are_type_errors():
    with pytest.raises(TypeError, match="epsilonn"):
        solve(X, Y, epsilonn=1.0)  # type: ignore[call-arg]


def test_two_devices():
    with pytest.raises(ValueError, match="X is on cpu and Y on meta"):
        solve(torch.from_numpy(X), torch.from_numpy(Y).to("meta"))


def test_a_dense_solver_that_does_not_fit_is_refused_before_it_starts():
    x = np.zeros((400_000, 2), dtype="float32")
    x[:, 0] = np.arange(len(x))
    with pytest.raises(MemoryError, match=r"KernelGW on 400000 x 400000 points needs about .* method='cnt'"):
        solve(x, x, method="kernel", init="zero", cost="sqeuclidean")


def test_a_matrix_of_costs_that_was_given_as_points_is_noticed():
    c = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    with pytest.warns(UserWarning, match=r"X is a symmetric matrix.*6 points in 6 dimensions.*cost='precomputed'"):
        solve(c, X, epsilon=0.1, init="zero")
    right = solve(c, c, cost="precomputed", epsilon=1e-3)
    np.testing.assert_array_equal(np.sort(right.map()), np.arange(6))


def test_sparse_arrays_and_names_that_are_near_nothing():
    sparse = scipy.sparse.csr_array(X)
    assert solve(sparse, Y, epsilon=0.1, init="zero").value == solve(X, Y, epsilon=0.1, init="zero").value
    with pytest.raises(ValueError, match=r"unknown cost 'qqq': known names: euclidean"):
        Space(X, cost="qqq")


TRUE = [np.linalg.norm(z[:, None] - z, axis=-1) for z in (X, Y)]
QUARTIC = [c**4 for c in TRUE]
SIDES = {  # of which the cost is not CNT
    "matrices, X": ((QUARTIC[0], TRUE[1]), "precomputed", ["X"]),
    "matrices, Y": ((TRUE[0], QUARTIC[1]), "precomputed", ["Y"]),
    "matrices, both": (QUARTIC, "precomputed", ["X", "Y"]),
    "points, X": ((X, Y), (gromap.Power(4), "euclidean"), ["X"]),
    "points, Y": ((X, Y), ("euclidean", lambda x, y: torch.cdist(x, y) ** 4), ["Y"]),
    "spaces, Y": ((Space(X), Space(Y, cost=gromap.Power(4))), "euclidean", ["Y"]),
    "spaces, both": ([Space.from_costs(c) for c in QUARTIC], "euclidean", ["X", "Y"]),
    "spaces with names": (
        [Space(z, cost=gromap.Power(4), name=n) for z, n in ((X, "cat"), (Y, "dog"))],
        "euclidean",
        ["cat", "dog"],
    ),
}


@pytest.mark.parametrize("case", SIDES)
def test_the_warning_of_a_cost_that_is_not_cnt_names_its_side(case):
    (left, right), cost, names = SIDES[case]
    with pytest.warns(UserWarning, match="not conditionally of negative type") as caught:
        solve(left, right, cost=cost, epsilon=0.1, method="cnt", init="zero", max_iter=1)
    assert [str(w.message).split(" is not ")[0] for w in caught] == [f"the cost of {name}" for name in names]


class Frame:
    """What a table of pandas is to numpy."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __len__(self):
        return len(self.values)


KINDS = {
    "lists": lambda z: z.tolist(),
    "a table": Frame,
    "long doubles": lambda z: z.astype(np.longdouble),
    "the other byte order": lambda z: z.astype(z.dtype.newbyteorder()),
    "a sparse tensor": lambda z: torch.from_numpy(z).to_sparse(),
    "every second row": lambda z: np.repeat(z, 2, 0)[::2],
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_in_other_clothes(kind):
    as_kind = KINDS[kind]
    expected = solve(X, Y, epsilon=0.1, init="zero").value
    assert solve(as_kind(X), as_kind(Y), epsilon=0.1, init="zero").value == pytest.approx(expected, rel=1e-12)
    losses = [float(gromap.gw_loss(x, y, epsilon=0.1, init="zero")) for x, y in ((as_kind(X), as_kind(Y)), (X, Y))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16", "uint64", "bool"])
def test_integers_and_booleans_are_numbers(dtype):
    x, y = (np.abs(4 * z).astype(dtype) for z in (X, Y))
    expected = solve(x.astype(float), y.astype(float), epsilon=0.1, init="zero").value
    assert solve(x, y, epsilon=0.1, init="zero").value == expected
    assert solve(x, y.astype("f4"), epsilon=0.1, init="zero").value == expected


@pytest.mark.parametrize("unit", [1e308, 5e-324])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_of_any_size(unit, dtype):
    sol = solve(X.astype(dtype), Y.astype(dtype), a=np.full(12, unit), epsilon=0.1, init="zero")
    assert sol.value == solve(X.astype(dtype), Y.astype(dtype), epsilon=0.1, init="zero").value


def in_pieces(*sizes):
    """Lengths of shortest paths along lines that are not connected."""
    c = np.full((sum(sizes), sum(sizes)), np.inf)
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        k = np.arange(size)
        c[end - size : end, end - size : end] = np.abs(k[:, None] - k)
    return c


def test_a_graph_in_pieces_and_what_its_message_says_to_do():
    X = in_pieces(5, 20, 9)
    with pytest.raises(ValueError, match=r"X has 650 infinite costs.* 3 components of 20, 9 and 5 points") as caught:
        solve(X, MATRIX, cost="precomputed")
    message = str(caught.value)
    with pytest.raises(ValueError, match=r"8 components, the largest of 3, 2, 1, 1, 1 and 1 points"):
        Space.from_costs(torch.from_numpy(in_pieces(1, 1, 1, 2, 3, 1, 1, 1)))
    names = {"np": np, "scipy": scipy, "X": X}
    exec("labels = " + message.split("where labels = ")[1].split("; or")[0], names)
    exec(message.split("with ")[1].split(" and so on")[0], names)
    part = eval(message.split("one by one, as ")[1].split(" with")[0], names)
    np.testing.assert_array_equal(part, X[:5, :5])
    exec(message.split("for instance ")[1].removesuffix("."), names)
    bridged = names["X"]
    assert bridged.max() == 1.5 * 19
    for c in (part, bridged):
        assert solve(c, MATRIX, cost="precomputed", epsilon=0.1, init="zero").converged


@pytest.mark.parametrize("kind", KINDS)
def test_costs_in_other_clothes(kind):
    expected = solve(*TRUE, cost="precomputed", epsilon=0.1, init="zero").value
    given = [KINDS[kind](c) for c in TRUE]
    found = solve(*given, cost="precomputed", epsilon=0.1, init="zero").value
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_costs_that_are_integers_or_booleans(dtype):
    c, d = (np.round(z).astype(dtype) for z in TRUE)
    options = {"cost": "precomputed", "epsilon": 0.5, "init": "zero", "method": "kernel"}
    expected = solve(c.astype(float), d.astype(float), **options).value
    assert solve(c, d, **options).value == solve(c, d.astype("f4"), **options).value == expected


def test_sparse_costs_are_taken_if_none_is_missing():
    given = [scipy.sparse.csr_matrix(c) for c in TRUE]
    options = {"cost": "precomputed", "epsilon": 0.1, "init": "zero"}
    assert solve(*given, **options).value == solve(*TRUE, **options).value


def test_an_object_of_costs_is_made_from_any_array():
    cost = gromap.Precomputed(MATRIX.tolist())
    np.testing.assert_array_equal(Space(np.arange(5), cost=cost).features, Space.from_costs(MATRIX).features)
    assert cost.to(torch.device("cpu")) is cost


def undefined(value):
    """The Euclidean distance, but for points with a large first coordinate."""

    def cost(x, y):
        far = (x[:, 0].abs() > 50)[:, None] | (y[:, 0].abs() > 50)
        d = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return torch.where(far & (d > 0), value, d)

    return cost


LONG = np.random.default_rng(2).normal(size=(300, 3))
SPOILED = LONG.copy()
SPOILED[[137, 222], 0] = 100.0
CALLS = {
    "solve": lambda c: solve(LONG, SPOILED, cost=c),
    "solve, no unit": lambda c: solve(LONG, SPOILED, cost=c, scale=None),
    "solve by the kernel": lambda c: solve(LONG, SPOILED, cost=c, method="kernel", init="zero", scale=None),
    "another solver": lambda c: solve(LONG, SPOILED, cost=c, method="entropic", init="zero", scale=None),
    "features": lambda c: Space(SPOILED, cost=c, name="Y").features,
    "landmarks": lambda c: Space(SPOILED, cost=c, name="Y", embedding=gromap.Nystrom(20, refine=0), dim=5).features,
    "far landmarks": lambda c: (
        Space(SPOILED, cost=c, name="Y", embedding=gromap.Nystrom(20, 1, "farthest"), dim=5).features
    ),
    "negative mass": lambda c: Space(SPOILED, cost=c, name="Y").negative_mass,
    "moments": lambda c: Space(SPOILED, cost=c, name="Y").moments,
    "loss": lambda c: gromap.gw_loss(LONG, SPOILED, cost=c),
    "loss in linear memory": lambda c: gromap.gw_loss(LONG, SPOILED, cost=c, method="cnt"),
}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("call", CALLS)
def test_a_cost_that_is_no_number_for_a_late_point(call, value, monkeypatch):
    monkeypatch.setattr("gromap.geometry.eigen.DIRECT_POINTS", 30)
    with pytest.raises(
        ValueError, match=r"the cost of Y is NaN or infinite for \d+ pair\(s\) of point (137|222), such as"
    ):
        CALLS[call](undefined(value))


def test_a_cost_that_is_no_number_for_an_early_point():
    with pytest.raises(ValueError, match=r"for 298 pair\(s\) of point 77, such as that with point 0: define"):
        Space(np.delete(SPOILED, 137, 0)[::-1], cost=undefined(np.nan)).features  # noqa: B018
    with pytest.raises(ValueError, match=r"for 63 pair\(s\) of point 3, such as that with point 0: define"):
        Space(SPOILED[134:200], cost=undefined(np.inf))


def test_a_cost_that_counts_differences():
    """Integers, and weights in their type would be zero."""

    def differing(x, y):
        return (x.round()[:, None] != y.round()).sum(-1)

    space, same = (Space(LONG, cost=c) for c in (differing, lambda x, y: differing(x, y).double()))
    np.testing.assert_array_equal(space.project(LONG), same.project(LONG))
    np.testing.assert_array_equal(space.moments.squares.numpy(), same.moments.squares.numpy())


@pytest.mark.filterwarnings("ignore:point")
@pytest.mark.parametrize("size", [1e160, 1e-200])
@pytest.mark.parametrize("method", ["auto", "kernel"])
def test_points_out_of_the_range_of_their_numbers(size, method):
    with pytest.raises(ValueError, match=r"Y has points .* apart.* out of the range of torch\.float64: divide Y"):
        solve(X, X * size, method=method, init="zero")
    far = np.r_[LONG, [[1e17] * 3]].astype(np.float32)  # which has its place
    assert np.isfinite(solve(far, far[::-1], method=method, init="zero", max_iter=2).value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [2.0**-100, 2.0**-80, 2.0**80, 2.0**100])
@pytest.mark.parametrize("cost", ["euclidean", "sqeuclidean", gromap.Power(0.5)])
@pytest.mark.parametrize("method", ["cnt", "kernel", "sampled", "lowrank-cost", "entropic"])
def test_units_change_nothing(dtype, size, cost, method):
    """Squares of 1e-30 and 1e30 are no float32: X was seen as one point."""
    x, y = X.astype(dtype), Y.astype(dtype)
    one, other = (solve(x * s, y, cost=cost, method=method, epsilon=0.1, max_iter=5) for s in (1.0, size))
    assert other.value == pytest.approx(one.value, rel=1e-3)
    np.testing.assert_array_equal(other.map(), one.map())
    assert other.plan.u.dtype == one.plan.u.dtype


@pytest.mark.parametrize(("dtype", "epsilon"), [("float32", 1e-10), ("float64", 1e-18), ("float64", 1e-300)])
@pytest.mark.parametrize("init", ["auto", "zero"])
def test_epsilon_below_the_rounding_errors(dtype, epsilon, init):
    """It ended in an error of svd, or in NaN."""
    x, y = X.astype(dtype), Y.astype(dtype)
    with pytest.raises(ValueError, match=rf"epsilon = {epsilon:g} is too small for torch\.{dtype}.*epsilon >= "):
        solve(x, y, epsilon=epsilon, init=init)
    with pytest.raises(ValueError, match="is too small for"):
        gromap.gw_loss(1e3 * x, 1e3 * y, epsilon=epsilon, init=init)
    with pytest.raises(ValueError, match="is too small for"):
        solve(x, y, scale=1e-200 if dtype == "float64" else 1e-9, init=init)
    assert np.isfinite(solve(x, y, epsilon=40 * np.finfo(dtype).eps, init=init, max_iter=2).value)


@pytest.mark.filterwarnings("ignore:the cost of")
def test_more_axes_than_a_cost_has():
    """|x - x'|⁴ has many negative eigenvalues, to which no axis belongs."""
    options = {"cost": "precomputed", "epsilon": 0.1, "init": "zero", "max_iter": 1}
    with pytest.raises(ValueError, match=r"dim = 12 axes for X.*eigenvalues but (\d) are negative: choose dim <= \1,"):
        solve(*QUARTIC, dim=(12, 1), **options)
    with pytest.raises(ValueError, match=r"dim = 9 axes for Y"):
        solve(*[Space.from_costs(c, dim=d) for c, d in zip(QUARTIC, (1, 9), strict=True)], epsilon=0.1)
    with pytest.raises(ValueError, match=r"dim = 12 axes for X"):
        gromap.gw_loss(X, Y, cost=gromap.Power(4), dim=(12, 9), method="cnt", epsilon=100.0, init="zero")


@pytest.mark.filterwarnings("ignore:the cost of")
def test_axes_that_are_zero_are_no_error():
    """Of "auto", of costs that are CNT, of points that coincide, and of methods that keep signs."""
    options = {"epsilon": 0.1, "init": "zero", "max_iter": 1}
    assert solve(*QUARTIC, cost="precomputed", **options).stats.explained == pytest.approx((1, 1))
    assert solve(*TRUE, cost="precomputed", dim=(12, 9), **options).stats.explained == pytest.approx((1, 1))
    solve(*[c.astype("f4") for c in TRUE], cost="precomputed", dim=(12, 9), **options)
    solve(np.repeat(X, 2, 0), Y, cost=lambda x, y: torch.cdist(x, y, p=1), dim=(24, 9), **options)
    solve(X, Y, cost=gromap.Power(4), dim=(12, 9), method="lowrank-cost", **options)
    gromap.gw_loss(X, Y, cost=gromap.Power(4), method="cnt", epsilon=100.0, init="zero")
    gromap.gradient_flow(X, Y, cost=gromap.Power(4), epsilon=100.0, init="zero", steps=1)
