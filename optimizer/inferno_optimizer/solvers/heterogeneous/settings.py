"""How the search for mixes of rows looks: limits, shares of the time, distances near enough.

They are passed from `solve_mixes` to whatever needs them, and nobody sets them but tests. A line
names the measurement that chose a value where one is on record; the others are choices whose
alternatives no record compares.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoverSettings:
    """Inequalities that sharpen "the replicas of a mix carry the load".

    Attributes
    ----------
    parts
        Into how many parts a replica is divided to measure with.
    most
        Where it takes more of the measure than this, rounding is no matter.
    violated
        An inequality that is missed by less is not worth having.
    each
        Inequalities of a case that are added at a time.
    rounds
        How often violated inequalities are added at most.
    """

    parts: tuple[int, ...] = (1, 2, 3)
    most: float = 60.0
    violated: float = 1e-3
    each: int = 3
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class MixPriceSettings:
    """The search for prices by column generation.

    Attributes
    ----------
    rounds
        How often mixes are added at most.
    enough
        Distance of the bound from that of the linear program at which that ends [share of the
        objective].
    width
        Parts of mixes of a case that go on in the search for a cheapest one.
    smooth
        Share of the best prices in those that are tried next.
    """

    rounds: int = 40
    enough: float = 1e-5
    width: int = 300
    smooth: float = 0.5


@dataclass(frozen=True, slots=True)
class NearSettings:
    """Mixes that cost little more than the cheapest ones.

    Attributes
    ----------
    many
        Cases with more mixes than this keep their items.
    average, average_of_many
        So many mixes of a case are near, on average, of few cases and of many. HiGHS takes 7 s to
        round 10,000 columns and looks at no clock meanwhile; 5,000 take it 2 s.
    few_cases
        Up to so many cases are few.
    few
        Parts of mixes of a case that go on in the search that tells how near that is.
    width
        Parts of mixes of a case that go on in the search for all that are near.
    together
        Cases that are searched at once; there is a look at the clock after each such group.
    smallest
        What costs more by less than this is as near as it can be [cents/hour or requests/min].
    """

    many: int = 200
    average: int = 10
    average_of_many: int = 5
    few_cases: int = 200
    few: int = 100
    width: int = 500
    together: int = 100
    smallest: float = 1e-6


@dataclass(frozen=True, slots=True)
class MixPartSettings:
    """Parts of a plan that are solved again.

    Attributes
    ----------
    cases
        Cases of the first parts. Parts of 10 were worse on six of eight fleets.
    growth, growth_after
        The factor by which parts grow, and after how many of them without any improvement.
    nodes
        Of branch and bound in a part; a limit that does not depend on how busy the machine is.
    seconds
        The longest that a part may take [s].
    patience
        Parts without any improvement after which the search ends.
    basic_chance
        Chance of a case to be solved again that has its cheapest mix, beside that of the worst.
    """

    cases: int = 15
    growth: float = 1.2
    growth_after: int = 5
    nodes: int = 200
    seconds: float = 3.0
    patience: int = 40
    basic_chance: float = 0.02


@dataclass(frozen=True, slots=True)
class MixTimeSettings:
    """Shares of the remaining time of a goal.

    Attributes
    ----------
    whole_program
        The MILP solver has the whole program first, for a level's load: it often proves the best
        load.
    prices
        The search for prices takes so much at most.
    ample
        The MILP solver has the whole program, if all prices are 0.
    lists
        The mixes near the cheapest ones are listed in so much at most.
    first_parts
        Parts before the program of all listed mixes, if a load is maximized.
    near
        The MILP solver has the program of all listed mixes, after that.
    proof_after, proof_after_parts
        The proof of a value begins when this share of the time after that is over, or as soon as
        so many parts in a row improve nothing [parts]. It begins late because a better plan
        leaves it less to look at: given a plan of 269,720 five of six random seeds proved it in 2
        to 3.5 s, given one of 269,870 hardly any in 6 s.
    proof
        The proof has at least so much of the same time, even if the parts find nothing more.
    """

    whole_program: float = 0.3
    prices: float = 0.4
    ample: float = 0.5
    lists: float = 0.3
    first_parts: float = 0.25
    near: float = 0.3
    proof_after: float = 0.45
    proof_after_parts: int = 10
    proof: float = 0.35


@dataclass(frozen=True, slots=True)
class MixSettings:
    """The search by levels.

    Attributes
    ----------
    small
        Up to so many items a program is solved to the last digit [items].
    gap
        Distance from the bound at which a larger program is searched no further [share of the
        bound].
    seconds_per_column
        The MILP solver needs so long for each column to find anything in a program [s].
    """

    small: int = 200
    gap: float = 5e-4
    seconds_per_column: float = 1e-4
    covers: CoverSettings = CoverSettings()
    prices: MixPriceSettings = MixPriceSettings()
    near: NearSettings = NearSettings()
    parts: MixPartSettings = MixPartSettings()
    time: MixTimeSettings = MixTimeSettings()


DEFAULTS = MixSettings()
"""What is used where nothing else is given."""
