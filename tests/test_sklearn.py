"""Estimators beside scikit-learn: its own checks, pipelines, grids and precomputed metrics."""

from __future__ import annotations

import sys
from importlib import import_module

import numpy as np
import pytest

import gromap
from tests.conftest import cloud, rotation

pytest.importorskip("sklearn")
from sklearn.cluster import AgglomerativeClustering
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gromap.sklearn import GromovAligner, GromovDistance

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
KNOWN = {"check_sample_weight_equivalence_on_dense_data": "plans agree to 1e-4, where the check asks for 1e-7"}


@parametrize_with_checks(
    [GromovAligner(target=np.random.default_rng(0).normal(size=(20, 3)))], expected_failed_checks=lambda _: KNOWN
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_points_go_to_their_copies_and_back():
    x, _ = cloud(120, 3, 0)
    aligner = GromovAligner(target=x[::-1] @ rotation(3), epsilon=3e-4).fit(x)
    assert isinstance(aligner.solution_, gromap.Solution)
    assert np.linalg.norm(aligner.transform(x) - x @ rotation(3), axis=1).mean() < 0.1
    assert np.linalg.norm(aligner.inverse_transform(x @ rotation(3)) - x, axis=1).mean() < 0.1
    np.testing.assert_allclose(aligner.transform(x), aligner.images_)
    new = x + 0.05 * np.random.default_rng(1).normal(size=x.shape)
    assert np.linalg.norm(aligner.transform(new) - new @ rotation(3), axis=1).mean() < 0.2
    assert list(aligner.get_feature_names_out()) == ["gromovaligner0", "gromovaligner1", "gromovaligner2"]


def test_the_target_may_be_y_and_weights_count():
    (x, a), (y, _) = cloud(40, 3, 0), cloud(31, 2, 1)
    one, other = GromovAligner(y, epsilon=0.1).fit(x, sample_weight=a), GromovAligner(epsilon=0.1).fit(x, y)
    sol = gromap.solve(x, y, a, epsilon=0.1, seed=0)
    np.testing.assert_allclose(one.images_, sol.plan.conditional_mean(y), atol=0.02)
    assert np.abs(one.images_ - other.images_).max() > 0.02


def test_a_grid_finds_the_sharper_plan():
    x, _ = cloud(90, 2, 3)
    grid = GridSearchCV(GromovAligner(target=x[::-1] @ rotation(2)), {"epsilon": [1e-3, 1.0]}, cv=3).fit(x)
    assert grid.best_params_ == {"epsilon": 1e-3}
    assert -0.05 < grid.best_score_ <= 0


def test_a_pipeline_and_pandas_output():
    pandas = pytest.importorskip("pandas")
    x, _ = cloud(60, 3, 1)
    model = make_pipeline(StandardScaler(), GromovAligner(target=cloud(50, 2, 2)[0]))
    out = model.set_output(transform="pandas").fit_transform(pandas.DataFrame(x))
    assert list(out.columns) == ["gromovaligner0", "gromovaligner1"]
    assert len(out) == 60


def test_without_a_target_it_says_so():
    with pytest.raises(ValueError, match="no target: pass target=Y"):
        GromovAligner().fit(np.eye(5))
    with pytest.raises(ValueError, match=r"Space\.from_costs"):
        GromovAligner(target=np.eye(5), cost="precomputed").fit(np.eye(5))


def shapes(seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Three clouds twice, turned and shaken, in a plane or in space."""
    rng, bases = np.random.default_rng(seed), [cloud(n, d, n)[0] for n, d in ((20, 2), (22, 3), (24, 2))]
    made = [x @ rotation(x.shape[1], k) + 0.02 * rng.normal(size=x.shape) for x in bases for k in range(2)]
    return made, np.repeat([0, 1, 2], 2)


def test_distances_cluster_and_classify():
    clouds, kinds = shapes(0)
    distance = GromovDistance(epsilon=0.01)
    D = distance.fit_transform(clouds)
    np.testing.assert_array_equal(D, D.T)
    few = gromap.pairwise(clouds[::2], epsilon=0.01, scale=distance.unit_)
    np.testing.assert_allclose(D[::2, ::2] ** 2, few.clip(min=0), atol=1e-12)
    np.testing.assert_allclose(distance.transform(clouds[:1]), D[:1], atol=0.15 * D.max())
    found = AgglomerativeClustering(3, metric="precomputed", linkage="average").fit_predict(D)
    assert len({*zip(found, kinds, strict=True)}) == 3
    model = make_pipeline(distance, KNeighborsClassifier(1, metric="precomputed")).fit(clouds, kinds)
    new, truth = shapes(1)
    assert (model.predict(new[1::2]) == truth[1::2]).all()


def test_a_cloud_that_is_none_is_named():
    with pytest.raises(ValueError, match="cloud 1"):
        GromovDistance().fit([np.eye(3), np.full((3, 2), np.nan)])


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "gromap.sklearn")
    with pytest.raises(ImportError, match=r"pip install 'gromap\[sklearn\]'"):
        import_module("gromap.sklearn")
