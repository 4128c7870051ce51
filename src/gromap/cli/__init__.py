"""The command line: `gromap match A B`, `landscape A B`, `pairwise FOLDER`, `barycenter A B C`, `view RESULT`, `bench`, `demo`.

Whatever the user can mend ends with exit code 2 and one line on stderr; Ctrl-C ends with 130 and keeps what is finished.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

INTERRUPTED = 130
MENDABLE = (ValueError, TypeError, OSError, ImportError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        from typer import Abort

        from gromap.cli.app import UsageMistake, app
        from gromap.cli.folder import Kept
    except ImportError as error:
        return _say(f"the command line needs typer and rich ({error}): pip install 'gromap[cli]'", 2)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"note: {message}", 0)
        try:
            code = app(args=None if argv is None else list(argv), prog_name="gromap", standalone_mode=False) or 0
        except Abort:  # Ctrl-C, in older versions of typer
            code = INTERRUPTED
        except Kept as error:
            return _say(f"interrupted; {error}", INTERRUPTED)
        except UsageMistake as error:
            return _say(f"{error.format_message()} Try --help.", 2)
        except MENDABLE as error:
            return _say(str(error) or type(error).__name__, 2)
    return code if code != INTERRUPTED else _say("interrupted; what was finished is kept.", code)


def _say(text: str, code: int) -> int:
    print("gromap:", " ".join(text.split()), file=sys.stderr)
    return code
