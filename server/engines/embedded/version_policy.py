"""Chooses which versions on disk should serve."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class VersionPolicy:
    """The newest versions, all versions, or a list of numbers.

    Attributes:
        count: The number of newest versions; None for all.
        numbers: Only these versions, if given.
    """

    count: int | None = 1
    numbers: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> "VersionPolicy":
        """Reads the setting: `latest`, `latest:N`, `all`, or numbers as in `1,3`.

        Example:
            >>> VersionPolicy.parse("latest:2").count
            2
        """
        if text == "all":
            return cls(None)
        if text.startswith("latest"):
            return cls(int(text.partition(":")[2] or 1))
        return cls(None, frozenset(int(number) for number in text.split(",")))

    def candidates(self, versions: Iterable[int]) -> list[int]:
        """Returns the versions to try, best first. The first `count` that load should serve."""
        allowed = (v for v in versions if self.numbers is None or v in self.numbers)
        return sorted(allowed, reverse=True)


LATEST = VersionPolicy()
