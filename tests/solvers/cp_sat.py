"""CP-SAT of OR-Tools, with all its strategies on two workers."""

from importlib.metadata import version

import numpy as np
from ortools.sat.python import cp_model

from tests.solvers.levels import THREADS, Found, Stage, in_whole_numbers

SCALE = 100
"""CP-SAT counts in whole numbers: what is minimized in hundredths."""


class CpSat:
    """The solver."""

    name = f"CP-SAT {version('ortools')}"

    def minimize(self, stage: Stage) -> Found:
        """Minimize one objective."""
        rows = stage.rows
        model = cp_model.CpModel()
        columns = [model.new_bool_var("") for _ in rows.case]
        for mine in rows.by_case():
            model.add_at_most_one(columns[row] for row in mine)
        for card_type, room in enumerate(rows.capacity):
            mine = rows.of_type(card_type)
            cards = rows.cards[mine].astype(int).tolist()
            chosen = [columns[row] for row in mine]
            model.add(cp_model.LinearExpr.weighted_sum(chosen, cards) <= int(room))
        for level, floor in enumerate(stage.floors):
            mine = rows.of_level(level)
            weights, least = in_whole_numbers(rows.weight[mine], float(floor))
            chosen = [columns[row] for row in mine]
            model.add(cp_model.LinearExpr.weighted_sum(chosen, weights) >= least)
        costs = np.round(stage.objective * SCALE).astype(int).tolist()
        model.minimize(cp_model.LinearExpr.weighted_sum(columns, costs))
        for column, known in zip(columns, stage.known.tolist(), strict=True):
            model.add_hint(column, known)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = THREADS
        solver.parameters.max_time_in_seconds = stage.seconds
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Found(None, -np.inf)
        chosen_rows = np.array([solver.boolean_value(column) for column in columns])
        return Found(chosen_rows, solver.best_objective_bound / SCALE)
