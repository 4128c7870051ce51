"""The machine of a benchmark: device and cores, time and peak memory of a run, tables of
results."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch

PROC = Path("/proc/self")
EX2_PER_CLOCK = 16  # of one streaming multiprocessor of an NVIDIA GPU
WARM_UP = 2  # runs that are not counted: the first compiles, the second fills the caches


def add_options(parser: argparse.ArgumentParser) -> None:
    """--device and --cores; `use` applies them."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default=default, help="where to compute (here: %(default)s)"
    )
    add_cores(parser)


def add_cores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cores", type=int, help="use this many CPU cores only; fewer than all if the machine is busy")


def use(args: argparse.Namespace) -> torch.device:
    """The device that was asked for, on as many cores as were asked for."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("No CUDA device here, or torch was built without CUDA: pass --device cpu.")
    use_cores(args.cores)
    return torch.device(args.device)


def use_cores(count: int | None) -> None:
    """Keep this process and its children on the first cores (Linux), and torch on as many
    threads."""
    if count is None:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
    torch.set_num_threads(count)


def describe(device: torch.device) -> dict[str, Any]:
    """What a reader must know about the machine."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "gromap": version("gromap"),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def version(package: str) -> str:
    """The installed version of a package, which may also run from its source tree."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return getattr(import_module(package), "__version__", "?")


def clock(run: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    """Seconds of several runs, by events on a CUDA device, after those that warm up."""
    once = _cuda_seconds if device.type == "cuda" else _cpu_seconds
    return [once(run) for _ in range(WARM_UP + repeats)][WARM_UP:]


def _cpu_seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _cuda_seconds(run: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def exp2_rate(device: torch.device) -> float:
    """exp2 per second that a CUDA device can reach; 0 where its clock is not known."""
    return torch.cuda.get_device_properties(device).multi_processor_count * EX2_PER_CLOCK * _highest_clock(device)


def _highest_clock(device: torch.device) -> float:
    """The highest clock of the multiprocessors, in Hz; 0 where nothing tells."""
    known = getattr(torch.cuda.get_device_properties(device), "clock_rate", 0)  # kHz, not in every torch
    if known:
        return 1e3 * known
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        if found and found[0].isdigit():
            return 1e6 * int(found[0])
    return 1.98e9 if "H200" in torch.cuda.get_device_name(device) else 0.0


@dataclass(frozen=True)
class Meter:
    """A stopwatch that also measures peak memory: `meter = Meter.start(device)`, then
    `meter.read()`."""

    device: torch.device
    base: int  # bytes held at the start
    begin: float

    @classmethod
    def start(cls, device: torch.device) -> Meter:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with contextlib.suppress(OSError, AttributeError):  # not Linux: an earlier peak then hides a lower one
                ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
                (PROC / "clear_refs").write_text("5", encoding="ascii")  # the peak falls to what is resident now
        return cls(device, _peak(device), time.perf_counter())

    def read(self) -> tuple[float, int]:
        """Seconds since the start, and bytes from what was held then to the peak since."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = time.perf_counter() - self.begin
        return seconds, _peak(self.device) - self.base


def _peak(device: torch.device) -> int:
    """The most bytes held so far: tensors on a CUDA device, or the resident set of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if (PROC / "status").exists():  # where ru_maxrss also counts what the parent held when it started us
        return int((PROC / "status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS, in bytes


def table(rows: Sequence[dict[str, str]]) -> str:
    """Rows of formatted cells under the names of their columns; the first column is aligned to
    the left."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = ([cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(" ".join([line[0].strip().ljust(widths[0]), *line[1:]]).rstrip() for line in cells)
