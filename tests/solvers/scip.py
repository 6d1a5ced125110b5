"""SCIP, on one thread as PySCIPOpt builds it."""

from importlib.metadata import version

import numpy as np
from pyscipopt import Model, quicksum

from inferno_optimizer.solvers.exact.program import BoolArray
from tests.solvers.levels import Found, Stage, rows_by_case, rows_of_type


class Scip:
    """The solver."""

    name = f"SCIP of PySCIPOpt {version('pyscipopt')}"

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""
        program = stage.program
        model = Model()
        model.hideOutput()
        model.setParam("limits/time", stage.seconds)
        columns = [model.addVar(vtype="B", obj=float(cost)) for cost in stage.objective]
        for mine in rows_by_case(program):
            model.addCons(quicksum(columns[row] for row in mine) <= 1)
        for card_type, room in enumerate(program.capacity):
            mine = rows_of_type(program, card_type)
            used = quicksum(float(program.cards[row]) * columns[row] for row in mine)
            model.addCons(used <= float(room))
        for level, floor in enumerate(stage.floors):
            mine = np.flatnonzero(program.level == level)
            served = quicksum(float(program.weight[row]) * columns[row] for row in mine)
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
