"""Single cells measured twice, by their RNA and by their open chromatin, brought together without
knowing which is which: SNARE-seq of four cell lines, 1047 cells (Chen, Lake, Zhang 2019).

    python examples/cells.py

Both sides become graphs of neighbors by correlation, as in SCOT (Demetci et al. 2022), whose
distances Gromov-Wasserstein compares. Since all cells were measured twice, the truth is known:

FOSCTTM          the share of cells that are closer to the image of a cell than its true match is,
                 the mean over all cells and both directions: 0 is perfect, 0.5 is chance
label transfer   the share of images whose five nearest cells are mostly of the right line

It needs anndata and scikit-learn, and `multimodal/SNAREseq_*.npy` in the folder that GROMAP_DATA
names, from the repository of SCOT.
"""

from __future__ import annotations

import argparse

import anndata
import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

from gromap.anndata import align
from gromap.bench.shapes import data_folder


def foscttm(x: np.ndarray, y: np.ndarray) -> float:
    """The fraction of samples closer than the true match, rows being pairs.  x, y: (N, d)"""
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
    own = squares.diagonal()
    closer = (squares < own[:, None]).mean(1) + (squares < own).mean(0)
    return float(closer.mean() / 2 * len(x) / (len(x) - 1))


def cells(kind: str) -> anndata.AnnData:
    """One measurement of all cells, each row of norm one, as SCOT takes them."""
    folder = data_folder() / "multimodal"
    made = anndata.AnnData(normalize(np.load(folder / f"SNAREseq_{kind}_feat.npy").astype(float)))
    made.obs["line"] = np.load(folder / "SNAREseq_types.npy").astype(str)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--neighbors", type=int, nargs="+", default=[50])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.01])
    args = parser.parse_args()
    for k in args.neighbors:
        for epsilon in args.epsilon:
            atac, rna = cells("atac"), cells("rna")
            sol = align(atac, rna, graph=k, metric="correlation", epsilon=epsilon)
            x, y = (np.asarray(one.obsm["X_gromap"]) for one in (atac, rna))
            lines = KNeighborsClassifier(5).fit(y, rna.obs["line"]).score(x, atac.obs["line"])
            error = foscttm(x, y)
            told = f"FOSCTTM {error:.4f}, label transfer {lines:.4f}, GW {sol.value_gw:.5f}"
            print(f"{k} neighbors, epsilon {epsilon:g}: {told}", flush=True)


if __name__ == "__main__":
    main()
