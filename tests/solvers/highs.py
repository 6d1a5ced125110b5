"""HiGHS alone, on all rows."""

from importlib.metadata import version

import highspy
import numpy as np

from tests.solvers.levels import THREADS, Found, Stage, rows_by_case, rows_of_type


class Highs:
    """The solver."""

    name = f"HiGHS {version('highspy')}"

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""
        program, rows = stage.program, len(stage.program.case)
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("threads", THREADS)
        highs.setOptionValue("time_limit", stage.seconds)
        highs.setOptionValue("mip_rel_gap", 1e-6)
        highs.addVars(rows, np.zeros(rows), np.ones(rows))
        every = np.arange(rows, dtype=np.int32)
        highs.changeColsCost(rows, every, stage.objective.astype(np.float64))
        kinds = np.full(rows, highspy.HighsVarType.kInteger.value, dtype=np.uint8)
        highs.changeColsIntegrality(rows, every, kinds)
        for mine in rows_by_case(program):
            highs.addRow(-highspy.kHighsInf, 1.0, len(mine), mine, np.ones(len(mine)))
        for card_type, room in enumerate(program.capacity):
            mine = rows_of_type(program, card_type)
            highs.addRow(-highspy.kHighsInf, float(room), len(mine), mine, program.cards[mine])
        for level, floor in enumerate(stage.floors):
            mine = np.flatnonzero(program.level == level).astype(np.int32)
            highs.addRow(float(floor), highspy.kHighsInf, len(mine), mine, program.weight[mine])
        start = highspy.HighsSolution()
        start.col_value = stage.known.astype(float).tolist()
        highs.setSolution(start)
        highs.run()
        info = highs.getInfo()
        chosen = np.array(highs.getSolution().col_value) > 0.5
        return Found(chosen if len(chosen) == rows else None, info.mip_dual_bound)
