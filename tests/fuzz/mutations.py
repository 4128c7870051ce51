"""Damage to files: bits, bytes, numbers and words, cut, repeated and replaced."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from hypothesis import strategies as st

Edit = Callable[[bytes], bytes]
NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_]{2,}")
LARGE = (0, 1, 2, 127, 255, 2**15, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
TEXTS = [b"-1", b"0", b"1", b"3", b"7", b"255", b"65536", b"200000000", b"4294967296", b"4000000000000", b"9" * 20]
TEXTS += [b"9" * 400, b"9" * 5000, b"nan", b"inf", b"-inf", b"1e38", b"1e308", b"1e400", b"1e-320", b"1.5", b"-0"]
TEXTS += [b"0x10", b"1_0", b"\xd9\xa3", b"", b"-", b".", b"true", b"null", b"[]", b"{}", b'""', b"x"]
BYTES = [struct.pack(f"{order}{kind}", n & (2 ** (8 * struct.calcsize(kind)) - 1)) for n in LARGE for order in "<>"
         for kind in "BHIQ"]  # fmt: skip
BYTES += [struct.pack(f"{order}{kind}", x) for x in (float("nan"), float("inf"), -1.0, 1e30) for order in "<>"
          for kind in "fd"]  # fmt: skip
PLACE = st.integers(0, 2**20)


def _flip(at: int, bit: int) -> Edit:
    def edit(data: bytes) -> bytes:
        changed = bytearray(data)
        if changed:
            changed[at % len(changed)] ^= 1 << bit
        return bytes(changed)

    return edit


def _splice(at: int, gone: int, new: bytes) -> Edit:
    """Take some bytes away, and put others there."""

    def edit(data: bytes) -> bytes:
        here = at % (len(data) + 1)
        return data[:here] + new + data[here + gone :]

    return edit


def _repeat(at: int, length: int, times: int) -> Edit:
    def edit(data: bytes) -> bytes:
        here = at % (len(data) + 1)
        return data[:here] + data[here : here + length] * times + data[here:]

    return edit


def _token(pattern: re.Pattern[bytes], at: int, new: bytes | int) -> Edit:
    """Another number or word in place of one; an integer names one of the same file."""

    def edit(data: bytes) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data
        chosen = found[at % len(found)]
        other = found[new % len(found)].group() if isinstance(new, int) else new
        return data[: chosen.start()] + other + data[chosen.end() :]

    return edit


EDITS: st.SearchStrategy[Edit] = st.one_of(
    st.builds(_flip, PLACE, st.integers(0, 7)),
    st.builds(_token, st.just(NUMBER), PLACE, st.sampled_from(TEXTS)),
    st.builds(_token, st.just(NUMBER), PLACE, PLACE),
    st.builds(_token, st.just(WORD), PLACE, PLACE),
    st.builds(lambda at, new: _splice(at, len(new), new), PLACE, st.sampled_from(BYTES)),
    st.builds(_splice, PLACE, st.sampled_from([0, 1, 4, 16, 2**20]), st.sampled_from([b"", *TEXTS])),
    st.builds(_splice, PLACE, st.just(0), st.binary(min_size=1, max_size=16)),
    st.builds(_repeat, PLACE, st.integers(1, 200), st.integers(1, 60)),
)


@st.composite
def damages(draw: st.DrawFn) -> Edit:
    """One to three edits, one after another."""
    edits = draw(st.lists(EDITS, min_size=1, max_size=3))

    def damage(data: bytes) -> bytes:
        for edit in edits:
            data = edit(data)
        return data

    return damage
