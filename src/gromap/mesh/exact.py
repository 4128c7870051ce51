"""A worker process: exact geodesic distances from some vertices of a mesh to all, row by row to
its standard output.

Run as a script: it starts fast, uses a core of its own, and an abort of the C++ code ends this
process alone.
"""

import io
import sys


def main() -> None:
    import numpy as np
    from pygeodesic.geodesic import PyGeodesicAlgorithmExact  # Mitchell, Mount & Papadimitriou 1987

    with np.load(io.BytesIO(sys.stdin.buffer.read())) as given:
        solver = PyGeodesicAlgorithmExact(given["vertices"], given["faces"])
        for source in given["sources"]:
            row, _ = solver.geodesicDistances(np.array([source]), None)
            sys.stdout.buffer.write(row.astype(np.float64).tobytes())


if __name__ == "__main__":
    main()
