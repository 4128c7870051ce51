"""`make dist`: what the wheel and the sdist hold, and that the wheel runs where nothing else of
gromap is.

The empty environment finds torch and the other dependencies in the one that runs this: to install
them again would take minutes, and tell nothing of gromap.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOOSE = {"pyproject.toml", "README.md", "LICENSE", ".gitignore"}  # that hatchling adds to an sdist


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(filter(None, listed.stdout.split("\0")))


def same(what: str, held: set[str], expected: set[str]) -> None:
    if held != expected:
        sys.exit(f"{what} lacks {sorted(expected - held)} and has {sorted(held - expected)} that it should not.")
    print(f"{what} holds its {len(held)} files and nothing else")


def check_wheel(path: Path) -> None:
    names = set(zipfile.ZipFile(path).namelist())
    facts = {name for name in names if ".dist-info/" in name}
    same(path.name, names - facts, {name.removeprefix("src/") for name in tracked("src")})
    kinds = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    same(f"its {next(iter(facts)).split('/')[0]}", {name.split("/", 1)[1] for name in facts}, kinds)


def check_sdist(path: Path) -> None:
    with tarfile.open(path) as archive:
        names = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    folders = ["src", "tests", "docs", "examples", "benchmarks", "Makefile", "constraints.txt"]
    pages = ["CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"]
    same(path.name, names - {"PKG-INFO"}, tracked(*folders, *pages) | LOOSE)


def check_demo(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        run = {"cwd": home, "check": True, "env": {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}}
        python = home / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
        subprocess.run([*pip, str(wheel.resolve())], **run)
        where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = Path(subprocess.run(where, capture_output=True, text=True, **run).stdout.strip())
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # behind gromap itself
        found = [str(python), "-c", "import gromap; print(gromap.__file__)"]
        place = subprocess.run(found, capture_output=True, text=True, **run).stdout.strip()
        if not Path(place).is_relative_to(site):
            sys.exit(f"gromap was imported from {place}, and not from the wheel.")
        subprocess.run([str(python.with_name("gromap")), "demo", "demo.png"], **run)
        made = {path.name for path in home.iterdir()} - {"venv"}
        same("the folder of the demo", made, {"demo.png", "demo.html"})


def main() -> None:
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    check_demo(wheel)


if __name__ == "__main__":
    main()
