"""The plans controller: what optimizations decide is recorded, approved, and carried out.

The order of writes is: the Plan, the Servers, the status of the Plan, the status of the Optimizer,
and at last its request. So a later run completes whatever an earlier one left behind: a Plan
without a status is carried out or held back again, decisions that are written already are not
written twice, and a request that was not cleared finds the Plan that it has caused.
"""
