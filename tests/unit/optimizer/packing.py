"""Whether replicas fit on nodes, by trying all placements."""

from functools import cache


def fit(free: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether all replicas fit, by trying every node for each."""

    @cache
    def search(free: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
        if not sizes:
            return True
        first, *rest = sizes
        return any(
            search(tuple(sorted((*free[:i], room - first, *free[i + 1 :]))), tuple(rest))
            for i, room in enumerate(free)
            if room >= first
        )

    return search(tuple(sorted(free)), sizes)
