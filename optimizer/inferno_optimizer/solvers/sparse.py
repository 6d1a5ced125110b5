"""Matrices of which most entries are 0, as HiGHS takes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from inferno_optimizer.sizing.queueing import FloatArray, IntArray

Entries = tuple[IntArray, IntArray, FloatArray]
"""Rows, columns and values of some entries."""


@dataclass(frozen=True, slots=True)
class SparseMatrix:
    """The entries row by row, in each row by column.

    Those of row i are at `starts[i]` to `starts[i + 1]` of `columns` and `values`.
    """

    shape: tuple[int, int]
    starts: IntArray
    columns: IntArray
    values: FloatArray

    @classmethod
    def of(cls, shape: tuple[int, int], entries: Sequence[Entries]) -> "SparseMatrix":
        """The matrix with these entries, no two of which are in the same place."""
        rows = np.concatenate([entry[0] for entry in entries])
        columns = np.concatenate([entry[1] for entry in entries])
        values = np.concatenate([entry[2] for entry in entries])
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=shape[0])
        return cls(shape, np.append(0, np.cumsum(counts)), columns[order], values[order])

    @property
    def rows(self) -> IntArray:
        """The row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.starts))

    def combined(self, weights: FloatArray) -> FloatArray:
        """The sum of all rows with these weights; shape (columns,)."""
        parts = np.repeat(weights, np.diff(self.starts)) * self.values
        return np.bincount(self.columns, parts, self.shape[1]).astype(np.float64)

    def put_into(self, model: highspy.HighsLp) -> None:
        """Make it the matrix of a model."""
        model.num_row_, model.num_col_ = self.shape
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = self.starts.astype(np.int32)
        model.a_matrix_.index_ = self.columns.astype(np.int32)
        model.a_matrix_.value_ = self.values
