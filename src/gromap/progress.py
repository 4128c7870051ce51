"""What `progress=True` shows."""

from __future__ import annotations

import sys

from gromap.solvers import Step


class Progress:
    """One line on stderr that is rewritten as the work goes on."""

    def __call__(self, text: str) -> None:
        sys.stderr.write(f"\r{'gromap: ' + text:<110}")
        sys.stderr.flush()

    def step(self, step: Step, total: int) -> None:
        done = 20 * (step.iteration + 1) // total
        self(
            f"[{'#' * done}{'.' * (20 - done)}] step {step.iteration + 1}, at most {total}  energy {step.energy:.6f}  "
            f"misplaced {step.marginal_error:.1e}  {step.seconds:.1f} s"
        )

    def close(self) -> None:
        sys.stderr.write("\n")
