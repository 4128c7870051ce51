"""The public door: every input is checked here, once, with errors that say what was given, what
is expected and what to do."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from gromap._torch import from_numpy

# what is no array but may become a space, by attributes that tell it
OTHERS = (
    (("obs", "obsm"), "an AnnData", "gromap.Space.from_anndata(...), or both to gromap.anndata.align"),
    (("adjacency", "nodes"), "a graph", "gromap.Space.from_graph(...)"),
    (("get_edgelist", "vs"), "a graph", "gromap.Space.from_graph(...)"),
    (("vertices", "faces"), "a mesh", "gromap.Space.from_mesh(...), or both to gromap.mesh.match"),
)


def extra(module: str, name: str, called: str | None = None) -> Any:
    """An optional package, or what to install to have it.  name: of the extra.  called: the
    package, if not as its module."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this needs {called or module} ({error}): pip install 'gromap[{name}]'") from error


def is_numpy(x: object) -> bool:
    """Whether results go back as numpy: everything but a torch tensor does."""
    return not isinstance(x, Tensor)


def to_array(x: Tensor, numpy: bool) -> Any:
    return x.detach().cpu().numpy() if numpy else x


def tensor(x: object, name: str, device: torch.device | str | None = None) -> Tensor:
    """A floating point tensor without NaN or inf, float32 or float64; never a view that a caller
    could see change."""
    t = real(x, name, device)
    if bool(torch.isfinite(t).all()):
        return t
    if t.ndim == 0:
        raise ValueError(f"{name} is {float(t)}, expected finite numbers.")
    bad = (~torch.isfinite(t)).reshape(len(t), -1).any(1).nonzero()[:, 0]
    raise ValueError(
        f"{name} has NaN or infinite values in {len(bad)} row(s), the first is row {int(bad[0])}: remove them."
    )


def real(x: object, name: str, device: torch.device | str | None = None) -> Tensor:
    """The same, with NaN and inf if there are any."""
    t = as_tensor(x, name)
    if t.is_complex():
        raise TypeError(f"{name} holds complex numbers; gromap expects real ones.")
    if not t.is_floating_point():
        t = t.double()
    elif t.dtype not in (torch.float32, torch.float64):
        t = t.float()
    t = t.detach().to(device) if device is not None else t.detach()
    if t.device.type == "mps":
        raise ValueError(f"{name} is on an Apple GPU, which has no float64: pass device='cpu'.")
    return t


def as_tensor(x: object, name: str) -> Tensor:
    for marks, what, instead in OTHERS:
        if all(hasattr(x, mark) for mark in marks):
            raise TypeError(f"{name} is {what}, expected an array of points: pass {instead}.")
    if isinstance(x, Tensor):
        return x if x.layout == torch.strided else x.to_dense()
    if hasattr(x, "toarray"):  # a sparse array or matrix of scipy
        x = cast("Any", x).toarray()
    if _is_masked(x):
        raise ValueError(f"some entries of {name} are masked, which have no value: fill them in, or remove their rows.")
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:  # rows of different lengths, for one
        raise TypeError(f"{name} must be a numeric array or tensor, got a {type(x).__name__}: {error}") from error
    if array.dtype.kind not in "biufc":
        given = "an array" if type(x) is np.ndarray else f"a {type(x).__name__}"
        hint = f" If it holds numbers, pass {name}.astype(float)." if hasattr(cast("object", x), "astype") else ""
        raise TypeError(f"{name} must be a numeric array or tensor, got {given} of dtype {array.dtype}.{hint}")
    # torch knows neither long doubles nor numbers in the byte order of other machines
    dtype = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
    return from_numpy(np.array(array, dtype=dtype, order="C"))


def _is_masked(x: Any) -> bool:
    """Whether entries of a numpy array, or of one in a list, are masked."""
    return np.ma.is_masked(x) or (isinstance(x, list | tuple) and any(map(np.ma.is_masked, cast("list[Any]", x))))


def points(x: object, name: str, device: torch.device | str | None = None, least: int = 2) -> Tensor:
    t = as_tensor(x, name)
    if t.ndim != 2:
        hint = f" For N points on a line write {name}[:, None]." if t.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (N, d), one point per row, got {tuple(t.shape)}.{hint}")
    count(len(t), name, least)
    if t.shape[1] == 0:
        raise ValueError(f"{name} has points without coordinates: shape {tuple(t.shape)}, expected (N, d) with d >= 1.")
    return tensor(t, name, device)


def in_range(x: Tensor, power: float, name: str) -> Tensor:
    """Points whose distances, to a power, are within the range of their numbers: float32 ones as
    float64 where these would leave it. Refuse those that leave that too."""
    size = float((x.amax(0).double() - x.amin(0).double()).abs().max())
    power = max(power, 2.0)  # distances are roots of squares
    for points in (x, x.double()):
        kind = torch.finfo(points.dtype)
        if size == 0 or kind.tiny ** (1 / power) <= size <= (kind.max / x.shape[1]) ** (1 / power):
            return points
    raise ValueError(
        f"{name} has points {size:.3g} apart, and powers of this are out of the range of {x.dtype}: divide {name} by a "
        "unit, or remove points that are far from all others."
    )


def indices(x: object, name: str, device: torch.device | str | None = None, least: int = 2) -> Tensor:
    """Points of an indexed cost, as an (N, 1) tensor of integers."""
    t = as_tensor(x, name)
    if t.is_floating_point() or t.is_complex() or t.ndim not in (1, 2) or (t.ndim == 2 and t.shape[1] != 1):
        raise ValueError(f"{name} must be N integer indices for this cost, got {t.dtype} of shape {tuple(t.shape)}.")
    count(len(t), name, least)
    return t.reshape(-1, 1).long().to(device or t.device)


def looks_like_costs(x: Tensor) -> bool:
    """Whether points are a symmetric matrix with a zero diagonal, as costs between points are."""
    square = x.ndim == 2 and x.shape[0] == x.shape[1] > 2
    return square and not bool(x.diagonal().any()) and bool(x.any()) and torch.equal(x, x.mT)


def count(n: int, name: str, least: int = 2) -> None:
    if n < least:
        what = "is empty" if n == 0 else "has a single point"
        raise ValueError(f"{name} {what}: Gromov-Wasserstein compares distances, which takes at least 2 points.")


def weights(a: object, n: int, name: str, of: str, like: Tensor) -> Tensor:
    """Non-negative weights of n points, normalized to one; uniform if None."""
    if a is None:
        return like.new_full((n,), 1.0 / n, dtype=like.dtype if like.is_floating_point() else torch.float64)
    t = tensor(a, name, like.device)
    if t.shape != (n,):
        raise ValueError(f"{name} must have one weight per point of {of}, shape ({n},), got {tuple(t.shape)}.")
    if bool((t < 0).any()):
        raise ValueError(
            f"{name} has negative weights (the first at index {int((t < 0).nonzero()[0, 0])}): masses must be >= 0."
        )
    top = t.max().double()
    if not float(top) > 0:
        raise ValueError(f"{name} is zero everywhere: at least two points of {of} must carry mass.")
    shares = t.double() / top  # of which the sum is finite
    t = (shares / shares.sum()).to(like.dtype if like.is_floating_point() else t.dtype)
    count(int((t > 0).sum()), f"{of}, counting only points of positive weight,")
    return t


def cost_matrix(c: object, name: str = "C") -> Tensor:
    """A symmetric matrix of finite costs >= 0 with a zero diagonal."""
    t = real(c, name)
    if t.ndim != 2 or t.shape[0] != t.shape[1]:
        raise ValueError(
            f"{name} must be a square matrix of costs between all pairs of points, got shape {tuple(t.shape)}."
        )
    count(len(t), name)
    _check_stored(c, name)
    _check_finite_costs(t, name)
    top = float(t.abs().max())
    diagonal, skew = float(t.diagonal().abs().max()), float((t - t.mT).abs().max())
    if diagonal > 1e-6 * top:
        raise ValueError(
            f"{name} has a non-zero diagonal (up to {diagonal:.3g}): a base cost satisfies c(x, x) = 0. Call "
            f"np.fill_diagonal({name}, 0); if {name} is a kernel, its cost is "
            f"np.diag({name})[:, None] + np.diag({name}) - 2 * {name}."
        )
    if skew > 1e-6 * top:
        half = not bool(t.tril().any()) or not bool(t.triu().any())
        remedy = f"{name} + {name}.T, since one half of it is zero" if half else f"({name} + {name}.T) / 2"
        raise ValueError(f"{name} is not symmetric (entries differ by up to {skew:.3g}): use {remedy}.")
    if float(t.min()) < 0:
        raise ValueError(f"{name} has negative costs (down to {float(t.min()):.3g}): a base cost is >= 0.")
    return ((t + t.mT) / 2).fill_diagonal_(0.0)


def _check_stored(c: object, name: str) -> None:
    """Refuse a sparse matrix that leaves out pairs: is their cost zero, or infinite?"""
    if isinstance(c, Tensor) and c.layout != torch.strided:
        i, j = c.detach().to_sparse_coo().coalesce().indices().cpu().numpy()
        dense = ".to_dense()"
    elif hasattr(c, "toarray"):
        entries = cast("Any", c).tocsr().tocoo()
        i, j, dense = entries.row, entries.col, ".toarray()"
    else:
        return
    n = len(c) if isinstance(c, Tensor) else cast("Any", c).shape[0]
    stored, pairs = int((i != j).sum()), n * (n - 1)
    if stored < pairs:
        raise ValueError(
            f"{name} is sparse and holds {stored} of its {pairs} costs between two points. If it holds the edges of a "
            f"graph, pass the lengths of shortest paths, scipy.sparse.csgraph.shortest_path({name}, directed=False); "
            f"if the other costs are zero, pass {name}{dense}."
        )


def _check_finite_costs(t: Tensor, name: str) -> None:
    """Refuse NaN, and infinite costs, which say that a graph is in pieces."""
    if bool(torch.isfinite(t).all()):
        return
    missing = t.isnan()
    if bool(missing.any()):
        i, j = missing.nonzero()[0].cpu().numpy()
        raise ValueError(
            f"{name} has NaN in {int(missing.sum())} of its {t.numel()} entries, the first at [{i}, {j}]: a cost is "
            "needed for every pair of points."
        )
    if bool(t.isneginf().any()) or bool(t.diagonal().isinf().any()):
        raise ValueError(f"{name} has entries of -inf, or inf on its diagonal: costs are >= 0, and c(x, x) = 0.")
    finite = torch.isfinite(t).cpu().numpy()
    labels: np.ndarray = import_module("scipy.sparse.csgraph").connected_components(finite, directed=False)[1]
    sizes = np.bincount(labels)
    found = f"{name} has {int((~finite).sum())} infinite costs"
    if int((sizes**2).sum()) > int(finite.sum()):
        raise ValueError(
            f"{found}, some between points that finite ones connect. If the finite ones are the edges of a graph, pass "
            f"the lengths of shortest paths, scipy.sparse.csgraph.shortest_path({name}, directed=False)."
        )
    raise ValueError(
        f"{found}: its points fall into {component_sizes(sizes)} that no finite cost connects. Match them one by one, "
        f"as {name}[np.ix_(part, part)] with part = np.flatnonzero(labels == 0) and so on, where labels = "
        f"scipy.sparse.csgraph.connected_components(np.isfinite({name}))[1]; or bridge them by a finite cost, for "
        f"instance {name} = np.where(np.isfinite({name}), {name}, 1.5 * {name}[np.isfinite({name})].max())."
    )


def component_sizes(sizes: np.ndarray) -> str:
    """ "3 components of 20, 9 and 5 points", and of many the largest."""
    ordered = [str(size) for size in np.sort(sizes)[::-1]]
    which = "" if len(ordered) <= 6 else ", the largest"
    return f"{len(ordered)} components{which} of {', '.join(ordered[:6][:-1])} and {ordered[:6][-1]} points"


def is_text(name: str) -> bool:
    """Whether a name can be written in UTF-8: names of files may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Auto:
    """dim="auto" where it stands for a number of axes."""

    axes: int


def is_auto(value: object) -> bool:
    return isinstance(value, Auto) or (isinstance(value, str) and value == "auto")


def dimension(dim: object, n: int, name: str) -> int | float | str:
    """An embedding dimension in 1 .. n, a share of variance in (0, 1), or "auto"."""
    if is_auto(dim):
        return min(dim.axes, n) if isinstance(dim, Auto) else "auto"
    if isinstance(dim, bool) or not isinstance(dim, int | float | np.integer | np.floating):
        raise TypeError(f"dim must be 'auto', an int, a share of variance in (0, 1), or a pair of them, got {dim!r}.")
    number = cast("float", dim)  # numpy's numbers are as good as Python's
    if isinstance(dim, float | np.floating):
        if not 0 < number < 1:
            raise ValueError(
                f"dim as a float is the share of variance to keep, in (0, 1); got {dim}. For an axis count use an int."
            )
        return float(number)
    if not 1 <= number <= n:
        raise ValueError(f"dim = {dim} axes for the {n} points of {name}: choose 1 <= dim <= {n}.")
    return int(number)


def pair(x: Any) -> tuple[Any, Any]:
    """Both entries of a 2-tuple or list; anything else counts for both sides."""
    if not isinstance(x, tuple | list):
        return x, x
    values = cast("tuple[Any, ...]", x)
    if len(values) != 2:
        raise ValueError(f"expected one value or a pair (for X, for Y), got {len(values)} values.")
    return values[0], values[1]


def positive(value: object, name: str) -> float:
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number > 0, got {value!r}.") from None
    if not (number > 0 and number < float("inf")):
        raise ValueError(f"{name} must be a finite number > 0, got {value}.")
    return number


def choice(value: object, known: Iterable[str], name: str) -> str:
    known = list(known)
    if isinstance(value, str) and value in known:
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {', '.join(map(repr, known))}, got {type(value).__name__}.")
    raise ValueError(f"unknown {name} {value!r}:{suggestion(value, known)} known: {', '.join(map(repr, known))}.")


def suggestion(value: str, known: Iterable[str]) -> str:
    """ " did you mean 'x'?", where a known name is near."""
    near = difflib.get_close_matches(value, known, n=1)
    return f" did you mean {near[0]!r}?" if near else ""


def warn(message: str) -> None:
    """Warn at the line of the caller's that led here: the first one outside of this package."""
    package, level, frame = str(Path(__file__).parent), 1, inspect.currentframe()
    while frame and frame.f_back and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def memory(needed: int, device: torch.device, what: str, remedy: str) -> None:
    """Refuse, before allocating anything, what does not fit."""
    free = free_memory(device)
    if needed > free:
        raise MemoryError(f"{what} needs about {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free: {remedy}")


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated, caches that give way included."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else sys.maxsize
