"""The command line: `gromap match A B`, `landscape A B`, `pairwise FOLDER`, `barycenter A B C`,
`view RESULT`, `bench`, `demo`.

Errors that the user can fix end with exit code 2 and one line on stderr; Ctrl-C ends with 130 and
keeps what is finished.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from gromap import _check

INTERRUPTED = 130
USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    for word in words:
        if not _check.is_text(word):
            return _report(f"{word!r} is not UTF-8, and reports name it: rename it.", 2)
    try:
        abort = _check.extra("typer", "cli").Abort
        _check.extra("rich", "cli")
    except ImportError as error:
        return _report(str(error), 2)
    from gromap.cli.app import UsageError, app
    from gromap.cli.folder import KeptResults

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _report(f"note: {message}", 0)
        try:
            code = app(args=words, prog_name="gromap", standalone_mode=False) or 0
        except (abort, KeyboardInterrupt):  # Ctrl-C, as versions of typer pass it on
            code = INTERRUPTED
        except KeptResults as error:
            return _report(f"interrupted; {error}", INTERRUPTED)
        except UsageError as error:
            return _report(f"{error.format_message()} Try --help.", 2)
        except USER_ERRORS as error:
            return _report(str(error) or type(error).__name__, 2)
    return code if code != INTERRUPTED else _report("interrupted; what was finished is kept.", code)


def _report(text: str, code: int) -> int:
    """Print one line to stderr; the exit code that goes with it."""
    print("gromap:", " ".join(text.split()), file=sys.stderr)
    return code
