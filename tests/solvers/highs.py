"""HiGHS alone, on all rows."""

from importlib.metadata import version

import highspy
import numpy as np

from tests.solvers.levels import THREADS, FloatArray, Found, IntArray, Stage


class Highs:
    """The solver."""

    name = f"HiGHS {version('highspy')}"

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""
        rows, count = stage.rows, len(stage.rows.case)
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("threads", THREADS)
        highs.setOptionValue("time_limit", stage.seconds)
        highs.setOptionValue("mip_rel_gap", 1e-6)
        highs.addVars(count, np.zeros(count), np.ones(count))
        every = np.arange(count, dtype=np.int32)
        highs.changeColsCost(count, every, stage.objective.astype(np.float64))
        kinds = np.full(count, highspy.HighsVarType.kInteger.value, dtype=np.uint8)
        highs.changeColsIntegrality(count, every, kinds)
        for mine in rows.by_case():
            _add(highs, -highspy.kHighsInf, 1.0, mine, np.ones(len(mine)))
        for card_type, room in enumerate(rows.capacity):
            mine = rows.of_type(card_type)
            _add(highs, -highspy.kHighsInf, float(room), mine, rows.cards[mine])
        for level, floor in enumerate(stage.floors):
            mine = rows.of_level(level)
            _add(highs, float(floor), highspy.kHighsInf, mine, rows.weight[mine])
        start = highspy.HighsSolution()
        start.col_value = stage.known.astype(float).tolist()
        highs.setSolution(start)
        highs.run()
        info = highs.getInfo()
        chosen = np.array(highs.getSolution().col_value) > 0.5
        return Found(chosen if len(chosen) == count else None, info.mip_dual_bound)


def _add(
    highs: highspy.Highs, least: float, most: float, columns: IntArray, factors: FloatArray
) -> None:
    """Add a row of the constraint matrix."""
    highs.addRow(least, most, len(columns), columns.astype(np.int32), factors)
