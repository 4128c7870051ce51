"""The `gromap` command, outside of the package, whose import takes a second or two: Ctrl-C in that
time ends with one line too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

INTERRUPTED = 130


def main() -> int:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # an exception inside of an import comes out as any other
        signal.signal(signal.SIGINT, _leave)
    from gromap.cli import main as command

    with suppress(ImportError):  # which the command reports
        import gromap.cli.app  # noqa: F401 - what takes long
    signal.signal(signal.SIGINT, before)
    return command()


def _leave(*_: object) -> None:
    os.write(2, b"gromap: interrupted.\n")
    os._exit(INTERRUPTED)
