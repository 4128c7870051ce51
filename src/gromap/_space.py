"""Space: a weighted cloud with its base cost, embedded once and matched often."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gromap import _cells, _check, _options
from gromap._progress import Event
from gromap._threads import one_thread
from gromap.geometry import graphs
from gromap.geometry.cost_check import bad_cost, check_cost
from gromap.geometry.cost_sums import BadCostError
from gromap.geometry.costs import Cost, Radial, as_cost
from gromap.geometry.embedding import (
    AUTO_AXES,
    AUTO_SHARE,
    WHOLE_POINTS,
    Embedding,
    KernelPCA,
    Method,
    Moments,
    Nystrom,
    embed,
    kernel_diagonal,
    moments,
    negative_mass,
)
from gromap.geometry.indexed_costs import Indexed, Precomputed
from gromap.geometry.measure import Measure, core

if TYPE_CHECKING:
    from gromap.mesh.embedding import MeshEmbedding
    from gromap.mesh.mesh import Mesh

NOT_CNT = 0.01  # share of the spectrum that is negative, from which a cost is not CNT
KERNEL_PCA_POINTS = 4096  # up to this many points `embedding="auto"` is exact kernel PCA
# and up to this many it refines Nyström by a sweep over all pairs: spectra right to 3e-6, not 4e-4
REFINED_POINTS = 50_000
# units that the costs of one point may take, at most: rounding errors of float32 are a tenth of a
# nat there at epsilon = 1e-3, and grow with the square
MAX_EXTENT = 10
FAR = 0.1  # energy of nine tenths of the points, beside that of a unit, below which one point is too far out
UNNAMED = ("X", "Y", "C")  # what spaces are called that were given no name


class Space:
    """A measure, its base cost and its embedding; the embedding is computed when first needed,
    then kept.

    X: (N, d) points; N integers for `Tree` and `Precomputed` costs; an (N, N) matrix of costs for
    cost="precomputed".
    a: weights, None = uniform.
    dim: axes to keep; a float in (0, 1) asks for a share of the variance; "auto": all that count
    up to 512 points, beyond that at least 20, and up to 128 until they explain 80 %.
    embedding: "auto", or `KernelPCA(...)`, `Nystrom(...)`.

    >>> import numpy as np, gromap
    >>> space = gromap.Space(np.random.default_rng(0).normal(size=(100, 3)), dim=10)
    >>> space.features.shape, space.explained > 0.7, space.negative_mass < 1e-9
    ((100, 10), True, True)
    """

    mesh_embedding: MeshEmbedding | None = None  #: how the points of `from_mesh` were found
    mesh: Mesh | None = None  #: the mesh that it was made of
    vertices: Tensor | None = None  #: where they lie in space, (N, 3)
    normals: Tensor | None = None  #: outward ones, where the mesh has two sides, (N, 3)
    closed: bool = False  #: whether it has an inside

    def __init__(
        self,
        X: Any,
        a: Any = None,
        *,
        cost: Any = "euclidean",
        dim: int | float | str = "auto",
        embedding: str | Method = "auto",
        seed: int = 0,
        device: torch.device | str | None = None,
        name: str = "X",
    ):
        self.name, self.numpy, self._seed, given = name, _check.is_numpy(X), _options.seed(seed), X
        device = _options.device(device)
        if isinstance(cost, str) and cost == "precomputed":
            cost = Precomputed(X, name)
            given = torch.arange(cost.size, device=device or cost.matrix.device)
        self.cost: Cost = as_cost(cost)
        if isinstance(self.cost, Indexed):
            points, dtype = _check.indices(given, name, device), self.cost.dtype
            self.cost = self.cost.to(points.device)
        else:
            points = _check.points(given, name, device)
            if _check.looks_like_costs(points):
                _check.warn(
                    f"{name} is a symmetric matrix with a zero diagonal, and was taken as {len(points)} points in "
                    f"{len(points)} dimensions: if it holds costs between points, pass cost='precomputed'."
                )
            dtype = points.dtype
        self.cost.check(points)
        if self.cost.degree is not None:
            points = _check.in_range(points, self.cost.degree, name)
        check_cost(self.cost, points, name)
        like = torch.empty(0, dtype=dtype, device=points.device)
        self.measure = Measure(points, _check.weights(a, len(points), "b" if name == "Y" else "a", name, like))
        self.total = None if a is None else float(_check.as_tensor(a, "a").double().sum())  # of the weights as given
        self.dim, self.axes_given = _check.dimension(dim, len(points), name), not _check.is_auto(dim)
        if isinstance(embedding, str):
            _check.choice(embedding, ["auto"], "embedding")
            embedding = _method_for(len(points))
        self.method = embedding

    @classmethod
    def from_costs(
        cls,
        C: Any,
        a: Any = None,
        *,
        dim: int | float | str = "auto",
        embedding: str | Method = "auto",
        seed: int = 0,
        device: torch.device | str | None = None,
        name: str = "C",
    ) -> Space:
        """The space of N points known by the symmetric (N, N) matrix of their costs alone:
        `Space(C, cost="precomputed")`.

        >>> import numpy as np, gromap
        >>> gromap.Space.from_costs(1.0 - np.eye(4), dim=3)
        Space(4 points, Precomputed, 3 axes)
        """
        return cls(C, a, cost="precomputed", dim=dim, embedding=embedding, seed=seed, device=device, name=name)

    @classmethod
    def from_mesh(
        cls,
        mesh: Any,
        a: Any = None,
        *,
        cost: Any = "geodesic",
        dim: int | float | str = "auto",
        seed: int = 0,
        device: torch.device | str | None = None,
        callback: Callable[[Event], Any] | None = None,
    ) -> Space:
        """The space of a mesh, of a mesh file, or of an object of trimesh, pyvista, open3d, meshio
        or pyFM, weighted by the areas of its vertices; the points of a cloud count alike.

        cost: "geodesic", "heat", "exact", "diffusion" or "biharmonic" is the Euclidean distance
        between points of R^8 that stand for the vertices (`space.mesh_embedding` tells how well; it
        is kept on disk, see gromap.mesh.cache). "geodesic" takes shortest paths over divided edges,
        "heat" the heat method, "exact" exact geodesics. Any other cost is taken between the
        vertices themselves.
        callback: called with an `Event` at each stage.

        >>> import gromap
        >>> from gromap.datasets import humans
        >>> gromap.Space.from_mesh(humans().source, cost="biharmonic")
        Space(4000 points, Power(p=1.0), 20 axes)
        """
        from gromap.mesh.cache import cached_embedding
        from gromap.mesh.embedding import METHODS
        from gromap.mesh.io import read_mesh
        from gromap.mesh.mesh import Mesh

        seed, device = _options.seed(seed), _options.device(device)
        mesh = mesh if isinstance(mesh, Mesh) else read_mesh(mesh)
        weights = mesh.vertex_areas() if a is None and len(mesh.faces) else a
        name = mesh.name or "the mesh"
        if not (isinstance(cost, str) and cost in METHODS):
            space = cls(mesh.vertices, weights, cost=cost, dim=dim, seed=seed, device=device, name=name)
            return space._with_mesh(mesh)
        points = _check.points(mesh.vertices, name).numpy()
        tell: Callable[[str], Any] | None = (
            (lambda text: callback(Event("mesh", 0, 0, note=text))) if callback else None
        )
        made = cached_embedding(replace(mesh, vertices=points), cost, seed=seed, device=device or "cpu", tell=tell)
        space = cls(made.points.astype(points.dtype), weights, dim=dim, seed=seed, device=device, name=name)
        space.mesh_embedding, space.vertices = made, torch.as_tensor(points, device=space.device)
        return space._with_mesh(mesh)

    @classmethod
    def from_graph(
        cls,
        graph: Any,
        a: Any = None,
        *,
        kind: str = "paths",
        weight: str | None = "weight",
        time: float = graphs.TIME,
        dim: int | float | str = "auto",
        seed: int = 0,
        device: torch.device | str | None = None,
        name: str = "the graph",
    ) -> Space:
        """The space of the nodes of a graph of networkx or igraph, in their order; or of a square
        matrix of the weights of its edges, sparse or not, in which 0 is no edge.

        kind: "paths", lengths of shortest paths, all in one matrix; "heat", squared distances
        K_ii + K_jj - 2 K_ij of the heat kernel K = exp(-t L) of the normalized Laplacian; or
        "diffusion", distances between walks of t lazy steps.
        weight: the attribute of edges that is their length for "paths", and how alike their ends
        are for the others, 1 where there is none; None counts each edge as 1.
        time: t of "heat" and "diffusion", which both see farther where it is larger.

        >>> import numpy as np, gromap
        >>> ring = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
        >>> gromap.Space.from_graph(ring).cost.matrix[0].tolist()
        [0.0, 1.0, 2.0, 3.0, 2.0, 1.0]
        """
        edges = graphs.adjacency(graph, weight)
        graphs.check_connected(edges)
        how: dict[str, Any] = {"dim": dim, "seed": seed, "device": device, "name": name}
        if _check.choice(kind, graphs.KINDS, "kind") == "paths":
            return cls(graphs.path_lengths(edges), a, cost="precomputed", **how)
        points = graphs.walk_points(edges, kind, _check.positive(time, "time"), _options.seed(seed))
        return cls(points, a, cost="sqeuclidean" if kind == "heat" else "euclidean", **how)

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        a: Any = None,
        *,
        use_rep: str | None = None,
        graph: int | str | None = None,
        metric: str = "euclidean",
        kind: str = "paths",
        cost: Any = "euclidean",
        dim: int | float | str = "auto",
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> Space:
        """The space of the cells of an AnnData.

        a: weights, or the name of a column of `obs`.
        use_rep: a key of `obsm`, or "X"; None takes "X_pca" where it is there, else X.
        graph: None takes `cost` between these points; a number joins each cell to so many nearest
        ones by `metric` ("euclidean", "cosine", "correlation"); a key of `obsp`, such as
        "connectivities", is a graph already. Paths count edges; `kind` as in `from_graph`.

        >>> import numpy as np, anndata, gromap
        >>> cells = anndata.AnnData(np.random.default_rng(0).normal(size=(60, 8)))
        >>> gromap.Space.from_anndata(cells, graph=10, metric="correlation", dim=5)
        Space(60 points, Precomputed, 5 axes)
        """
        weights = _cells.weights(adata, a)
        how: dict[str, Any] = {"dim": dim, "seed": seed, "device": device, "name": "the cells"}
        if graph is None:
            return cls(_cells.representation(adata, use_rep), weights, cost=cost, **how)
        if isinstance(graph, str):
            edges = _cells.stored_graph(adata, graph)
        else:
            edges = graphs.neighbor_graph(_cells.representation(adata, use_rep), graph, metric=metric)
        return cls.from_graph(edges, weights, kind=kind, weight=None if kind == "paths" else "weight", **how)

    def _with_mesh(self, mesh: Mesh) -> Space:
        """This space, which knows its mesh and the outside of it."""
        from gromap.mesh.outside import outside

        self.mesh, found = mesh, outside(mesh)
        if found is not None:
            self.normals = torch.as_tensor(found.normals, device=self.device, dtype=self.dtype)
            self.closed = found.closed
        return self

    def stand_in(self, n: int, dim: Any) -> Space:
        """So many points of this unit that take no memory, all of them the first one: to ask what a
        solve of them would take."""
        other = copy(self)
        other.extent, other.scale = self.extent, self.scale
        vars(other).pop("embedding", None)
        points, weights = self.measure.points, self.measure.weights
        other.measure = Measure(points[:1].expand(n, -1), weights[:1].expand(n))
        other.dim, other.method = _check.dimension(dim, n, self.name), _method_for(n)
        return other

    def part(
        self,
        some: slice,
        features: Tensor,
        weights: Tensor,
        spectrum: Tensor,
        variance: float,
        extents: tuple[float, float],
    ) -> Space:
        """Some of its points, with the features, the weights and the unit that they have in the
        whole, as another process found them.

        spectrum, variance: of the whole embedding.  extents: `scale` and `extent` of the whole.
        """
        other = copy(self)
        other.scale, other.extent = extents
        other.measure = Measure(self.measure.points[some].clone(), weights)
        other.embedding = Embedding(features, spectrum, variance, 0.0, _refuse_to_project)
        return other

    def __len__(self) -> int:
        return len(self.measure)

    def __repr__(self) -> str:
        kept = f", {self.explained:.1%} of variance".replace("%", " %") if self.is_embedded else ""
        axes = self.likely_axes if self.is_embedded or not isinstance(self.dim, float) else self.dim
        cost = repr(self.cost) if not isinstance(self.cost, Indexed) else type(self.cost).__name__
        return f"Space({len(self)} points, {cost}, {axes} axes{kept})"

    @property
    def dtype(self) -> torch.dtype:
        return self.measure.weights.dtype

    @property
    def device(self) -> torch.device:
        return self.measure.weights.device

    @cached_property
    def embedding(self) -> Embedding:
        with self._all_finite(), one_thread():
            made = embed(self.cost, self.measure, self.dim, self.method, self._seed, lambda: self.negative_mass)
        if isinstance(self.dim, str) and made.explained < AUTO_SHARE:
            _check.warn(
                f"the {made.features.shape[1]} axes of {self.name} explain {made.explained:.0%} of its variance, and "
                "the match knows nothing of the rest: pass a larger dim, a share such as dim=0.9, or method='kernel'."
            )
        return made

    @property
    def likely_axes(self) -> int:
        """How many axes the embedding has, or may have."""
        if self.is_embedded:
            return self.embedding.features.shape[1]
        if isinstance(self.dim, int):
            return self.dim
        return len(self) if len(self) <= WHOLE_POINTS else AUTO_AXES

    @property
    def is_embedded(self) -> bool:
        """Whether the embedding is known already."""
        return "embedding" in self.__dict__

    @property
    def coordinates(self) -> Tensor:
        """Where means make sense: the points of a cost of their distance, else the features.
        (N, d) or (N, D)"""
        return self.measure.points if isinstance(self.cost, Radial) else self.embedding.features.to(self.dtype)

    def side(self) -> Tensor | Callable[[], Tensor]:
        """The coordinates, or how to find them where they take an embedding."""
        known = isinstance(self.cost, Radial) or self.is_embedded
        return self.coordinates if known else partial(getattr, self, "coordinates")

    @cached_property
    def negative_mass(self) -> float:
        """How far the cost is from CNT: the share of negative eigenvalues of the centered kernel
        in Σ|θ|, 0 for a CNT cost."""
        with self._all_finite():
            return negative_mass(self.cost, self.measure)

    @property
    def is_cnt(self) -> bool:
        """Whether the cost is conditionally of negative type, but for a hundredth."""
        return self.cost.cnt or self.negative_mass <= NOT_CNT

    @cached_property
    def scale(self) -> float:
        """The unit of the cost: r^p for |x - x'|^p and the radius r that holds nine tenths of the
        mass, around the mean of these; else the squared radius of the embedded cloud that does.
        At least a tenth of the same for all points, `extent`; one, if all are one point."""
        return max(self._core, self.extent / MAX_EXTENT) or 1.0

    @cached_property
    def _core(self) -> float:
        """The unit, but for a point that is very far out."""
        if self.cost.degree is not None:
            return self.measure.core_radius() ** self.cost.degree
        with self._all_finite():
            return core(lambda w: kernel_diagonal(self.cost, self.measure, w), self.measure.weights.double())

    @cached_property
    def extent(self) -> float:
        """The same for the point that is farthest out, from the mean of all points."""
        if self.cost.degree is not None:
            return self.measure.radius() ** self.cost.degree
        with self._all_finite():
            return max(0.0, float(kernel_diagonal(self.cost, self.measure)[self.measure.support].max()))

    @cached_property
    def moments(self) -> Moments:
        """What the exact costs know beyond the kept axes: the squared norms of the embedding,
        and Σ_k a_k c_ik²."""
        with self._all_finite():
            return moments(self.cost, self.measure)

    @property
    def explained(self) -> float:
        """The share of the embedding's variance that the kept axes explain, in [0, 1]: of the sum
        of the positive eigenvalues, where the cost is not CNT and has negative ones."""
        return self.embedding.explained

    @property
    def spectrum(self) -> Any:
        """The variance along each axis; decreasing, unless the axes are those of the points."""
        return self._out(self.embedding.spectrum)

    @property
    def features(self) -> Any:
        """The centered embedding, |X_i - X_j|² ≈ c(x_i, x_j).  (N, D)"""
        return self._out(self.embedding.features)

    @property
    def weights(self) -> Any:
        return _check.to_array(self.measure.weights, self.numpy)

    def project(self, points: Any) -> Any:
        """Embed new points (Alg. Kernel-Proj): on the old ones this gives `features` again.  (n,
        D)"""
        check = _check.indices if isinstance(self.cost, Indexed) else _check.points
        new = check(points, "points", self.device, least=1)
        if new.shape[1] != self.measure.points.shape[1]:
            raise ValueError(f"points have {new.shape[1]} coordinates, the space has {self.measure.points.shape[1]}.")
        self.cost.check(new)
        return self._out(self.embedding.project(new.to(self.measure.points.dtype)))

    def warn_if_not_cnt(self, side: str) -> None:
        """Warn where the embedding drops more than a hundredth of the spectrum, and refuse a
        `dim` with axes that it does not have.

        side: "X" or "Y", what a space without a name is called.
        """
        if self.cost.cnt:
            return
        name = side if self.name in UNNAMED else self.name
        if self.axes_given and isinstance(self.dim, int) and self.embedding.missing:
            most = self.dim - self.embedding.missing
            raise ValueError(
                f"dim = {self.dim} axes for {name}, but the cost is not conditionally of negative type, and all of its "
                f"eigenvalues but {most} are negative: choose dim <= {most}, 'auto', or a share such as 0.99."
            )
        if not self.is_cnt:
            _check.warn(
                f"the cost of {name} is not conditionally of negative type: {self.negative_mass:.1%} of its "
                "spectrum is negative and was left out of the embedding. The match minimizes a different cost; use "
                "method='kernel' for the exact one or 'lowrank-cost' in linear memory (they may oscillate), or a "
                "CNT cost such as 'euclidean'."
            )

    def warn_if_far(self, side: str, eps: float) -> None:
        """Warn of a point so far from all others that these look alike beside it, at the
        temperature eps.

        side: "X" or "Y", what a space without a name is called.
        """
        if self.cost.degree is None or not 0 < (self._core / self.scale) ** 2 < min(eps, FAR):
            return
        far, name = self.measure.farthest(), side if self.name in UNNAMED else self.name
        times = (self.extent / self._core) ** (1 / self.cost.degree)
        _check.warn(
            f"point {far} of {name} is {times:.2g} times as far out as nine tenths of the points, which look alike "
            f"beside it at epsilon = {eps:g}: leave it out, or give it the weight 0."
        )

    @contextmanager
    def _all_finite(self) -> Generator[None]:
        """Name the point where a sum over all costs shows that one of them is no number: only
        few points were looked at before."""
        try:
            yield
        except BadCostError as error:
            raise ValueError(bad_cost(error, self.measure.points, self.name)) from None

    def _out(self, x: Tensor) -> Any:
        return _check.to_array(x.to(self.dtype), self.numpy)


def _refuse_to_project(points: Tensor) -> Tensor:
    raise ValueError("a part of a space does not know the map of the whole: project by the whole one.")


def _method_for(n: int) -> Method:
    """What `embedding="auto"` is for so many points."""
    return KernelPCA() if n <= KERNEL_PCA_POINTS else Nystrom(refine=1 if n <= REFINED_POINTS else 0)
