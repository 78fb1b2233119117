"""Bytes as people read them, in powers of 1000."""

from __future__ import annotations

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def unit(count: float) -> tuple[float, str]:
    """The unit in which a count of bytes is short, and how many bytes it is."""
    power = 0
    while float(f"{count / 1000**power:.3g}") >= 1000 and power < len(UNITS) - 1:
        power += 1
    return float(1000**power), UNITS[power]


def format_bytes(count: float) -> str:
    """Three significant digits and a unit: 1725000000 is '1.73 GB'."""
    size, name = unit(count)
    value = count / size
    digits = 0 if name == "B" else max(0, 3 - len(str(int(float(f"{value:.3g}")))))
    return f"{value:.{digits}f} {name}"
