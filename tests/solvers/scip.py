"""SCIP, on one thread as PySCIPOpt builds it."""

from importlib.metadata import version

import numpy as np
from pyscipopt import Model, quicksum

from tests.solvers.levels import BoolArray, Found, Stage


class Scip:
    """The solver."""

    name = f"SCIP of PySCIPOpt {version('pyscipopt')}"

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""
        rows = stage.rows
        model = Model()
        model.hideOutput()
        model.setParam("limits/time", stage.seconds)
        columns = [model.addVar(vtype="B", obj=float(cost)) for cost in stage.objective]
        for mine in rows.by_case():
            model.addCons(quicksum(columns[row] for row in mine) <= 1)
        for card_type, room in enumerate(rows.capacity):
            mine = rows.of_type(card_type)
            used = quicksum(float(rows.cards[row]) * columns[row] for row in mine)
            model.addCons(used <= float(room))
        for level, floor in enumerate(stage.floors):
            mine = rows.of_level(level)
            served = quicksum(float(rows.weight[row]) * columns[row] for row in mine)
            model.addCons(served >= float(floor))
        start = model.createSol()
        for row in np.flatnonzero(stage.known):
            model.setSolVal(start, columns[row], 1.0)
        model.addSol(start)
        model.optimize()
        if model.getNSols() == 0:
            return Found(None, -np.inf)
        best = model.getBestSol()
        chosen: BoolArray = np.array([model.getSolVal(best, c) for c in columns]) > 0.5
        return Found(chosen, float(model.getDualbound()))
