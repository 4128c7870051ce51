"""Cells: what is read of an AnnData, in memory, as a view and on disk, and what is written."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import gromap
from tests.conftest import cloud, rotation

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

from gromap.anndata import align  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:hardly any start")


def cells(x: np.ndarray, **rest):
    names = pandas.Index([f"cell{k}" for k in range(x.shape[0])])
    return anndata.AnnData(x, obs=pandas.DataFrame(index=names), **rest)


def two(n: int = 80):
    """A cloud, and its reversed copy with two more axes; types of cells by place."""
    x, a = cloud(n, 3, 0)
    first, second = cells(x), cells(np.pad(x[::-1] @ rotation(3), ((0, 0), (0, 2))))
    first.obs["mass"] = a
    kinds = np.array(["low", "middle", "high"])[np.digitize(x[:, 0], [-1, 2])]
    second.obs["kind"] = pandas.Categorical(kinds[::-1])
    return first, second, kinds


def points(space: gromap.Space) -> np.ndarray:
    return space.measure.points.numpy()


def test_representations_and_weights():
    first, _, _ = two()
    first.obsm["X_pca"] = first.X[:, :2].copy()
    np.testing.assert_array_equal(points(gromap.Space.from_anndata(first)), first.obsm["X_pca"])
    np.testing.assert_array_equal(points(gromap.Space.from_anndata(first, use_rep="X")), first.X)
    mass = first.obs["mass"].to_numpy()
    for a in ("mass", first.obs["mass"], mass):
        np.testing.assert_allclose(gromap.Space.from_anndata(first, a).weights, mass / mass.sum())
    sparse = cells(scipy.sparse.csr_matrix(first.X))
    np.testing.assert_array_equal(points(gromap.Space.from_anndata(sparse)), first.X)


def test_graphs_of_the_cells():
    first, _, _ = two()
    A = gromap.neighbor_graph(first.X, 8)
    first.obsp["connectivities"] = scipy.sparse.csr_matrix(scipy.sparse.triu(A))  # in one direction
    mine, stored = (gromap.Space.from_anndata(first, graph=g) for g in (8, "connectivities"))
    np.testing.assert_array_equal(mine.cost.matrix, gromap.Space.from_graph(A, weight=None).cost.matrix)
    np.testing.assert_array_equal(mine.cost.matrix, stored.cost.matrix)
    heat = gromap.Space.from_anndata(first, graph="connectivities", kind="heat")
    x, y = points(heat), points(gromap.Space.from_graph(A, kind="heat"))
    np.testing.assert_allclose(x @ x.T, y @ y.T, atol=1e-9)


@pytest.mark.parametrize("form", ["memory", "view", "backed", "backed sparse"])
def test_what_is_written(form, tmp_path):
    first, second, kinds = two()
    if form.startswith("backed"):
        if "sparse" in form:
            first.X = scipy.sparse.csr_matrix(first.X)
        first.write_h5ad(tmp_path / "first.h5ad")
        first = anndata.read_h5ad(tmp_path / "first.h5ad", backed="r")
    elif form == "view":
        first = cells(np.vstack([first.X, first.X]))[:80]
        assert first.is_view
    with pytest.warns(anndata.ImplicitModificationWarning) if form == "view" else nullcontext():
        sol = align(first, second, epsilon=3e-4, labels="kind", keep=4)
    x, y = first.obsm["X_gromap"], second.obsm["X_gromap"]
    np.testing.assert_array_equal(y, second.X)
    assert np.linalg.norm(x - y[::-1], axis=1).mean() < 0.15
    assert (first.obs["gromap_kind"] == kinds).mean() > 0.95
    plan = first.obsm["gromap_plan"]
    np.testing.assert_allclose(plan.toarray(), sol.plan.sparse(4).toarray())
    assert list(first.uns["gromap"]["cells"]) == list(second.obs_names)
    for one in (first, second):
        assert one.uns["gromap"]["value"] == sol.value
        assert one.uns["gromap"]["status"] == "CONVERGED"
    if form == "memory":
        for one in (first, second):
            one.write_h5ad(tmp_path / "again.h5ad")
            again = anndata.read_h5ad(tmp_path / "again.h5ad")
            np.testing.assert_array_equal(again.obsm["X_gromap"], one.obsm["X_gromap"])
            assert again.uns["gromap"]["epsilon"] == 3e-4


def test_parts_say_what_is_kept():
    first, second, _ = two()
    align(first, second[:60].copy(), mass=0.7, epsilon=1e-2)
    kept = first.obs["gromap_kept"].to_numpy()
    assert kept.shape == (80,)
    assert 0 <= kept.min() < 0.5 < kept.max()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: gromap.Space.from_anndata(a, use_rep="X_umap"), "unknown use_rep 'X_umap'.*known: 'X'"),
        (lambda a, b: gromap.Space.from_anndata(a, "weight"), "unknown column of obs 'weight'.*'mass'"),
        (lambda a, b: gromap.Space.from_anndata(a, a.obs["mass"][::-1]), "another index than the cells"),
        (lambda a, b: gromap.Space.from_anndata(a, graph="distances"), "unknown graph, a key of obsp"),
        (lambda a, b: gromap.Space.from_anndata(a, graph=1), "falls into .* components"),
        (lambda a, b: align(a, b, labels=["kinds"]), "unknown label, a column of b.obs 'kinds'.*did you mean 'kind'"),
        (lambda a, b: align(anndata.AnnData(shape=(5, 2)), b), "has no X: pass use_rep"),
    ],
)
def test_what_is_not_there_is_named(call, message):
    first, second, _ = two()
    with pytest.raises(ValueError, match=message):
        call(first, second)


def test_cells_measured_twice_find_each_other():
    """SNARE-seq, as in examples/cells.py: SCOT, tuned, is told to reach .150 and .936."""
    neighbors = pytest.importorskip("sklearn.neighbors")
    folder = Path(os.environ.get("GROMAP_DATA", "")) / "multimodal"
    if not folder.is_dir():
        pytest.skip("GROMAP_DATA has no multimodal cells")
    x, y = (np.load(folder / f"SNAREseq_{kind}_feat.npy").astype(float) for kind in ("atac", "rna"))
    lines = np.load(folder / "SNAREseq_types.npy").astype(str)
    order = np.random.default_rng(0).permutation(len(x))  # or the order would be a start
    atac, rna = (cells(z / np.linalg.norm(z, axis=1, keepdims=True)) for z in (x, y[order]))
    align(atac, rna, graph=50, metric="correlation", epsilon=0.01)
    image, truth = atac.obsm["X_gromap"], rna.obsm["X_gromap"][np.argsort(order)]
    gaps = np.linalg.norm(image[:, None] - truth, axis=-1)
    closer = (gaps < gaps.diagonal()[:, None]).mean(1) + (gaps < gaps.diagonal()).mean(0)
    assert closer.mean() / 2 <= 0.150
    assert neighbors.KNeighborsClassifier(5).fit(truth, lines).score(image, lines) >= 0.94
