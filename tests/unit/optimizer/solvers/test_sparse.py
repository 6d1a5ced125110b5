"""Sparse matrices, against those of SciPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from inferno_optimizer.solvers.sparse import SparseMatrix


@given(
    st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 7)), st.floats(-9, 9), min_size=1),
    st.integers(0, 40),
)
def test_entries_in_any_order_and_parts_are_the_matrix_that_scipy_makes_of_them(
    entries: dict[tuple[int, int], float], cut: int
) -> None:
    rows, columns = np.array(list(entries)).T
    values = np.array(list(entries.values()))
    parts = [(rows[:cut], columns[:cut], values[:cut]), (rows[cut:], columns[cut:], values[cut:])]

    matrix = SparseMatrix.of((6, 8), parts)

    expected = csr_array((values, (rows, columns)), shape=(6, 8))
    assert matrix.starts.tolist() == expected.indptr.tolist()
    assert matrix.columns.tolist() == expected.indices.tolist()
    assert matrix.values.tolist() == expected.data.tolist()
