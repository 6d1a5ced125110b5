"""All tuned numbers of the search, in one validated class.

They are passed on from `solve`, as a field of the problem and of the budget, and nobody sets them
but tests. A field whose reason names no measurement is a choice with which no record compares
another. [work] is a second of the machine on which it was measured, see `budget.py`; a share is a
number from 0 to 1. Tolerances are relative unless they say what they are of.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Tolerance = Annotated[float, Field(gt=0, le=1e-2)]
Number = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class SolveParams:
    """Limits, shares of the work, distances that are near enough, and tolerances."""

    # --- Numbers that are computed ---
    # Loads, shares, savings and sums that differ by less are the same.
    rounding: Tolerance = 1e-9
    # Sums of the same numbers in another order differ by less.
    same: Tolerance = 1e-12
    # Distance from a whole number up to which replicas are whole; and what a floor may miss.
    whole: Tolerance = 1e-6
    # Distance from its bound up to which nothing of a goal is missing.
    solved: Tolerance = 1e-6
    # Gap up to which a plan counts as optimal, as is usual with MILP solvers.
    optimal: Tolerance = 1e-4

    # --- The work of a search, in the time limit ---
    # Work for each second of the time limit [work/s]. It is a little more than a quiet machine does
    # in time, so that important classes, which come first, have as much on a busy one.
    work_per_second: Positive = 1.3
    # Work less for each row of the candidate table: rows are sized, filled and decided on, too.
    work_per_row: Positive = 2e-5
    # Work for each second of the time limit at least [work/s].
    least_work_per_second: Positive = 0.25
    # Time kept for the decisions, as a multiple of that of sizing: both go through all servers, and
    # a busy machine slows both down alike.
    decisions: Positive = 1.2
    # Share of the time limit that is kept for the worth of one more card, at most.
    prices_share: Share = 0.07
    # Time for the worth of one more card [s].
    prices_seconds: Positive = 0.14
    # Time for the same, for each row of the candidate table [s].
    prices_seconds_per_row: Positive = 5e-5
    # Share of the cases that may stay as they are from which the first plan lets them stand.
    most_stand: Share = 0.5

    # --- What a step costs ---
    # A linear program, for each coefficient [work].
    linear: Positive = 4e-8
    # A step of the simplex method [work].
    linear_step: Positive = 3e-5
    # A step of the simplex method, for each coefficient of its program [work].
    linear_step_coefficient: Positive = 1e-9
    # A mixed integer program, for each coefficient [work].
    mixed: Positive = 3e-6
    # A step of all relaxations of a mixed integer program [work].
    mixed_step: Positive = 1.7e-4
    # What HiGHS does in a mixed integer program from one look at its limits to the next, for each
    # coefficient [work]: it tells of its steps at the end only.
    mixed_look: Positive = 6e-6
    # To price all columns, for each coefficient [work].
    pricing: Positive = 2e-8
    # To complete a plan, for each column [work].
    plan: Positive = 4e-7
    # To change one case of a plan, for each column [work].
    plan_step: Positive = 1e-8

    # --- Goals ---
    # Columns up to which HiGHS has all of the problem, to the last digit.
    small: Number = 1_500
    # Share of the load of a level that later goals may take in a larger problem, unless a person
    # wants another one. Servers come in lumps: to keep the last requests may take most cards of the
    # rest. In `m-1000-2` (seed 2), where 5e-4 of the fourth level may go, 8 s serve 37 % of the
    # fifth, and 49 % with this.
    tolerance: Tolerance = 9e-4
    # Share of the tolerance within which a plan is near enough to its bound.
    near: Share = 0.25
    # Distance of a value from its bound that is near enough.
    near_value: Tolerance = 1e-4
    # Share of a load by which a dive stays above its floor: plans of whole replicas miss floors by
    # 1e-5 to 4e-4.
    above_floor: Tolerance = 2e-4
    # Tolerances that are missing of a load from which dives come first: programs around a vertex
    # hardly find a plan then, and take the time.
    far: Positive = 4.0

    # --- Shares of the work of a goal ---
    # In which columns are decided; then replicas are exchanged.
    searched: Share = 0.3
    # The same of the last level and of the value.
    searched_last: Share = 0.5
    # In which the tree decides columns before any dive.
    tree_first: Share = 0.15
    # Of what is left, for parts that are solved again where no more than a tolerance is missing and
    # others follow: these may take as much.
    refined: Share = 0.3
    # Of what is left, for each part that is solved again.
    part_again: Share = 0.5
    # Of what is left of the last goals, for columns between a vertex and the plan.
    between_last: Share = 0.7
    # Of what is left, for the surroundings of each vertex.
    around: Share = 0.2
    # Of what is left, for cases close to the vertex of a dive.
    close: Share = 0.1
    # Of the work of the last level, for its proof besides: it is that of the value.
    proof: Share = 0.25

    # --- Relaxation: restricted master, pricing ---
    # Below minus this, relative to the largest cost, a column improves the restricted master.
    reduced_cost: Tolerance = 1e-7
    # Columns of a case that pricing adds at a time: those of the least reduced cost.
    columns_per_case: Count = 3
    # How often columns are added at most; the bound holds whenever it ends.
    pricing_rounds: Count = 60
    # What a share that is missing costs, where the largest part of the objective is 1.
    missing_cost: Positive = 1e6

    # --- Warm start from the relaxation of a sample ---
    # Cases from which a relaxation begins near that of a sample, unless few steps solve it.
    sampled_from: Count = 3_000
    # Steps of the simplex method until columns are added that are few.
    few_steps: Number = 1_000
    # Cases of a sample that stand for themselves only: the largest ones.
    sample_large: Number = 500
    # Cases of a sample, more than `sample_large`.
    sample: Count = 1_500
    # Columns of each case to begin with: the best ones at the prices of the sample.
    sample_columns: Count = 2
    # Steps that suffice from the basis of a sample, unless many of them change nothing.
    sample_steps: Count = 4_000

    # --- Tree and dives ---
    # Share of a case from which a column has some of it; or from which a share is missing.
    some: Tolerance = 1e-7
    # Part of the worth of all cards that each type has for the order of decisions.
    type_worth: Share = 1e-2
    # Part of the distance that is near enough below which a case is not worth a decision.
    least_worth: Share = 0.5
    # Decisions of the tree between two dives.
    tree_decisions: Count = 5
    # Dive after dive, one of so many parts of the split cases is decided at a time.
    dive_parts: Counts = (5, 1, 3, 2, 10, 20)
    # How often a dive turns back at most.
    dive_turns: Number = 12
    # Decisions in turn that lose nothing, after which cases with the same choice stay. Sooner, a
    # dive among few large servers has less room for later decisions.
    dive_idle: Count = 4
    # Numbers of cases that get whole replicas in vain before the rest does without.
    dive_whole_failures: Count = 6
    # Numbers of cases that get whole replicas in all.
    dive_whole: Count = 25
    # Share of the cards of a type from which the first dive leaves a case where it is.
    large_case: Share = 5e-3

    # --- Rounding and repair ---
    # How often a case is given more replicas, for each floor, at most.
    lifts: Count = 50
    # Steps after which a floor is given up that would be missed after all of them at this pace.
    lifts_tried: Count = 5
    # How often room is made at most.
    room_steps: Count = 1_000
    # A loss that is taken only where there is no other.
    forbidden_loss: Positive = 1e15

    # --- Large neighbourhood search ---
    # Nodes of the tree of which the surroundings are solved at most.
    surroundings: Count = 4
    # Cases that are open in the mixed integer program, in turn, until the plan is near enough.
    open_cases: Counts = (150, 500, 2_000)
    # Columns of a case at most: the ones that lose the least.
    open_columns: Count = 6
    # Columns of a case that are open around a vertex, or between it and a plan.
    open_columns_around: Count = 2
    # Cases that are open close to the vertex of a dive.
    close_cases: Count = 50
    # Part of the distance that is near enough at which the mixed integer program ends.
    near_part: Share = 0.5
    # Cases that exchange replicas at first.
    exchanged: Count = 120
    # Among so many times as many.
    exchanged_among: Count = 10
    # How often in vain before they are twice as many.
    exchange_patience: Count = 6

    # --- Mixes: pricing, and programs with the replicas of each row ---
    # Rows up to which all mixes may be listed.
    mix_few_items: Number = 200
    # Parts of mixes at a time up to which all mixes may be listed.
    mix_few_parts: Number = 100_000
    # Listing, for each part [work].
    mix_part: Positive = 2e-6
    # Parts of mixes of a case that go on in pricing: with 200 a round takes twice the time, which
    # the search of 2 s lacks; what is dropped leaves a bound behind.
    mix_width: Count = 50
    # Pricing, for each row of a case [work].
    mix_item: Positive = 2e-5
    # As `mixed_look`, for a program in which mixes have variables of their own [work].
    mix_look: Positive = 1.5e-6
    # Time for each column and row from which such a program begins [s]: what HiGHS does before its
    # search does not heed a limit. 1,000 servers would take 10.5 s of 6 s.
    mix_seconds: Positive = 1e-4
    # Of the work of a goal, in which mixes are priced, or of all work, listed; the following are
    # shares of what is left, in turn.
    mix_pricing: Share = 0.3
    # Rounds of pricing without whose work columns are searched before it, as if there were no
    # mixes: 2 s of 1,000 servers serve 90 % of a class, and 48 % with pricing first.
    mix_rounds: Count = 3
    # In which columns are searched. Without it, before the programs, 2 s of 100 servers serve 67 %
    # of a class instead of 94 %: HiGHS finds no plan in that time.
    mix_search: Share = 0.2
    # In which all cases of a load are solved at once.
    mix_program: Share = 0.5
    # In which a few cases are solved at a time, for a load.
    mix_parts: Share = 0.5
    # The same for the value; what is left is for its proof.
    mix_parts_value: Share = 0.65
    # Part of the distance that is near enough at which pricing ends, and a program.
    mix_near: Share = 0.5
    # The same at which the program of a value with all cases ends: its bound is far.
    mix_near_value: Positive = 4.0
    # Rounds of pricing in turn that gain less, after which it ends.
    mix_idle_rounds: Count = 2
    # Cases that are solved together at first.
    mix_cases: Count = 15
    # For each time [work].
    mix_part_work: Positive = 1.0
    # How many times as many there are after some times in vain.
    mix_more_cases: Annotated[float, Field(ge=1)] = 1.2
    # So many times.
    mix_more_cases_after: Count = 5
    # Times in vain after which it ends.
    mix_patience: Count = 40
    # Chance of a case that loses nothing to be among them, beside that of the worst.
    mix_any_case: Share = 0.02

    # --- What runs, and the exchanges of the greedy solver ---
    # What may stay of replicas on several accelerators, in so many ways at most.
    lots: Count = 256
    # Rows that are tried in a plan, those that save most first, which takes 3 s at most: on 20
    # accelerators, 3,000 servers try 43,000, and 10,000 have 95 % of what 100,000 would save.
    tries: Number = 50_000
    # Rows that are tried before two plans are compared: 10,000 servers would take seconds for all.
    first_tries: Number = 500
    # Moves that are tried to be taken back at a time, those that cost most first: 0.1 s for 10,000
    # servers.
    returns: Number = 200
    # Servers that move for one that returns, at most.
    longest_return: Count = 12
    # Cases up to which a second plan is made. For 10,000 servers it would take half as long again
    # as the whole solver takes, and the operator would write their decisions so much later.
    second_plan: Number = 3_000

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.sample <= self.sample_large:
            raise ValueError("sample_large: some cases of a sample have to stand for others")
        return self


DEFAULTS = SolveParams()
"""What is used where nothing else is given."""
