"""Subject-safe splits and caps. A subject is never on both sides of a border."""

from __future__ import annotations

import numpy as np

from sscf.errors import ConfigError


def subject_split(y: np.ndarray, subjects: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and rows for validation, ascending; whole subjects, classes kept in proportion.

    Parameters
    ----------
    y : (n,) class indices
    subjects : (n,) subject of every row
    fraction : share of the rows wanted for validation, 0 <= fraction < 1
    seed : int

    Subjects are grouped by their most frequent class and drawn from every group. A data set of one subject cannot be
    split: all its rows are for training.

    >>> train, valid = subject_split(np.tile([0, 1], 20), np.repeat(np.arange(10), 4), 0.2, seed=0)
    >>> len(train), len(valid)
    (32, 8)
    """
    if not 0 <= fraction < 1:
        raise ConfigError(f"the validation fraction must lie in [0, 1), got {fraction}")
    names, code = np.unique(subjects, return_inverse=True)
    everything = np.arange(len(y))
    if fraction == 0 or len(names) < 2:
        return everything, everything[:0]
    counts = np.zeros((len(names), int(y.max(initial=0)) + 1), np.int64)
    np.add.at(counts, (code, y), 1)
    size, kind = counts.sum(axis=1), counts.argmax(axis=1)
    order = np.random.default_rng([seed, 0x5B1]).permutation(len(names))
    chosen = np.zeros(len(names), bool)
    for group in np.unique(kind):
        members = order[kind[order] == group]
        # The first subjects whose rows come nearest to the share wanted of this group.
        reached = np.concatenate([[0], np.cumsum(size[members])])
        chosen[members[: int(np.abs(reached - fraction * reached[-1]).argmin())]] = True
    if not chosen.any():  # few subjects: none of the groups alone had one to spare
        chosen[order[0]] = True
    if chosen.all():
        chosen[order[-1]] = False
    valid = chosen[code]
    return everything[~valid], everything[valid]


def cap_rows(y: np.ndarray, subjects: np.ndarray, most: int, seed: int = 0) -> np.ndarray:
    """At most `most` rows, ascending: classes and, within a class, subjects as equally as the data allow."""
    if most < 1:
        raise ConfigError(f"the cap on windows must be at least 1, got {most}")
    if len(y) <= most:
        return np.arange(len(y))
    order = np.random.default_rng([seed, 0xCA9]).permutation(len(y))
    # Round robin twice: rank rows within (class, subject), then rank those within the class; low ranks are taken first.
    within_subject = _rank(order, y.astype(np.int64) * (int(subjects.max()) + 1) + subjects)
    by_subject = order[np.argsort(within_subject[order], kind="stable")]
    within_class = _rank(by_subject, y)
    by_class = by_subject[np.argsort(within_class[by_subject], kind="stable")]
    return np.sort(by_class[:most])


def cap_recordings(recordings: np.ndarray, most: int, seed: int = 0) -> np.ndarray:
    """Rows of whole recordings, ascending, until `most` is reached: for tasks that need unbroken sequences."""
    if most < 1:
        raise ConfigError(f"the cap on windows must be at least 1, got {most}")
    if len(recordings) <= most:
        return np.arange(len(recordings))
    names, code, counts = np.unique(recordings, return_inverse=True, return_counts=True)
    order = np.random.default_rng([seed, 0xCA9]).permutation(len(names))
    reached = np.cumsum(counts[order])
    taken = order[: max(1, int(np.searchsorted(reached, most, side="right")))]
    return np.flatnonzero(np.isin(code, taken))


def _rank(order: np.ndarray, group: np.ndarray) -> np.ndarray:
    """For every row, how many rows of its group stand before it in `order`."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    by_group = np.lexsort((position, group))
    starts = np.flatnonzero(np.diff(group[by_group], prepend=group[by_group[0]] - 1))
    rank = np.empty(len(order), np.int64)
    rank[by_group] = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    return rank
