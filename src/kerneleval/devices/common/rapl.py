"""Energy of the host's processors and their memory, by the kernel's ``powercap`` files (RAPL, of Intel and AMD)."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["HOST", "Rapl"]

_PACKAGE, _PART = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")


class Rapl:
    """The counters of all packages and of their DRAM, added up since the first reading.

    A counter begins again at ``max_energy_range_uj``, after some minutes of full load; one reading a minute is enough
    to notice. Parts of a package (``core``, ``uncore``) are in the package's own figure, and ``psys`` is that of the
    platform: none of them is added. Since Linux 5.10 only root may read them, unless their modes were changed.

    Args:
        root: the folder with the zones.
    """

    def __init__(self, root: str | Path = "/sys/class/powercap") -> None:
        self._root = Path(root)
        self._zones: dict[Path, int] = {}
        self._last: dict[Path, int] = {}
        self._sum_uj = 0
        self._begun = False

    def read_mj(self) -> float | None:
        """Millijoules since the first reading; None: the kernel has none, or not for this user."""
        try:
            if not self._begun:
                self._begin()
            for zone, range_uj in self._zones.items():
                now = _number(zone / "energy_uj")
                gone = now - self._last[zone]
                self._sum_uj += gone if gone >= 0 else gone + range_uj
                self._last[zone] = now
        except (OSError, ValueError):
            return None
        return self._sum_uj / 1e3 if self._zones else None

    def _begin(self) -> None:
        zones, last = {}, {}
        for zone in sorted(self._root.glob("intel-rapl:*")):
            name = (zone / "name").read_text().strip()
            package = _PACKAGE.fullmatch(zone.name) and name.startswith("package")
            if package or (_PART.fullmatch(zone.name) and name == "dram"):
                zones[zone] = _number(zone / "max_energy_range_uj")
                last[zone] = _number(zone / "energy_uj")
        self._zones, self._last, self._begun = zones, last, True


def _number(path: Path) -> int:
    return int(path.read_text())


HOST = Rapl()
"""This host's."""
