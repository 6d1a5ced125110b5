"""How the exact solver searches: limits, shares of the time, distances that are near enough.

They are passed from `solve_by_levels` to whatever needs them, and nobody sets them but tests. A
line names the measurement that chose a value where one is on record; the others are choices
whose alternatives no record compares.
"""

from dataclasses import dataclass

from inferno_optimizer.solvers.levels import GIVEN_UP


@dataclass(frozen=True, slots=True)
class ProgramSizes:
    """Rows up to which a program is small, medium or large [rows].

    Up to `small` rows a program is solved as it is, to the last digit. Of a larger one the MILP
    solver gets the rows that can be part of a better solution than the known one, if they are no
    more than `large`, after parts of the program were solved again; and at once, for a short
    time, if they are no more than `medium`. In a program of more than `large` rows each case is a
    small part of the whole: neither cuts nor branch and bound are worth their time.

    `small` was measured in 8 s on 36 fleets of 100 to 400 servers at demand 0.8 to 4: up to 2,600
    rows both ways find the same, and this one in half of the time; from 5,000 on a search finds
    more.
    """

    small: int = 3_000
    medium: int = 6_000
    large: int = 25_000


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """The search for prices.

    Attributes
    ----------
    enough
        Distance from the best bound at which it ends [share of the bound].
    cooling, coolings
        The next temperature [share of the one before]; temperatures at most.
    newton_steps
        Newton steps at a temperature at most.
    close
        Newton decrement at which the next temperature is due [temperatures].
    boundary
        How much of the way to a multiplier of 0 a step may go [share of the way].
    ridge
        Added to a Hessian scaled to a diagonal of 1: two constraints may bind the same cases.
    halvings
        How often a step is halved at most.
    reach
        Excess from which a row has no share in its case: exp(-100) [temperatures].
    tries
        How often such rows are sought at a temperature before all of them take part.
    largest
        Larger than any price: where rows are missing, multipliers may grow without a bound.
    many
        From so many rows on leaving out the others saves nothing [share of all rows].
    eased_cards
        Cards of each type that are added while multipliers are sought [cards]. Where a load that
        must be kept takes every card of a type, any larger multiplier proves as much; a little
        room bounds it.
    eased_load
        The same for loads that must be kept: so much may be missed meanwhile [share of the load].
    """

    enough: float = 1e-7
    cooling: float = 0.2
    coolings: int = 40
    newton_steps: int = 12
    close: float = 0.01
    boundary: float = 0.95
    ridge: float = 1e-10
    halvings: int = 30
    reach: float = 100.0
    tries: int = 3
    largest: float = 1e60
    many: float = 0.7
    eased_cards: float = 1e-3
    eased_load: float = 1e-6


@dataclass(frozen=True, slots=True)
class CutSettings:
    """Cuts of the relaxation.

    Attributes
    ----------
    between
        Distance from its bounds from which an integral column is fractional.
    extreme
        A remainder so close to 0 or 1 cuts off little, or makes factors large.
    deep
        Distance of the relaxed solution from a cut that is worth it.
    divisors
        Factors of fractional columns that are tried as divisors.
    fractions
        The best divisor is also tried divided by these.
    complements
        The most fractional columns, which are also tried the other way round: complemented or not.
    parallel
        Cosine of the angle of two cuts from which the second one adds little.
    most
        Cuts that are found at once.
    margin
        Added to the room of a cut [share of it]: it holds in spite of rounded numbers.
    """

    between: float = 1e-6
    extreme: float = 0.01
    deep: float = 1e-4
    divisors: int = 12
    fractions: tuple[int, ...] = (2, 4, 8)
    complements: int = 8
    parallel: float = 0.9
    most: int = 40
    margin: float = 1e-7


@dataclass(frozen=True, slots=True)
class RelaxationSettings:
    """When cuts are added to a relaxation.

    Attributes
    ----------
    between
        Distance from 0 and 1 from which an amount is worth a cut.
    tableau_rows
        Rows of the simplex tableau that may become cuts: those of the most fractional amounts.
    hardly
        Change by which cuts hardly improve the objective [share of it].
    patience
        How often in a row they may hardly improve it.
    cuts
        How they are found.
    """

    between: float = 1e-4
    tableau_rows: int = 60
    hardly: float = 1e-5
    patience: int = 3
    cuts: CutSettings = CutSettings()


@dataclass(frozen=True, slots=True)
class PackingSettings:
    """First choices of rows.

    Attributes
    ----------
    tie
        Excess up to which rows count as equally good [share of the price of a row].
    cases_per_look
        After so many cases the time is looked at.
    """

    tie: float = 1e-4
    cases_per_look: int = 50


@dataclass(frozen=True, slots=True)
class DivingSettings:
    """The decision of the large cases.

    Attributes
    ----------
    small
        Cases up to so many times the median size are left to exchanges.
    together_rows
        Rows of the largest cases that branch and bound decides together, in seconds.
    together_time
        What that may take [share of the remaining time].
    together_gap
        Distance from the best at which it may end [share of the objective]: the exchanges after
        it end there as well.
    step
        Cases down to this share of the size of the largest that is split are decided with it.
    close
        Change at which no other row of a case is tried [share of the objective].
    """

    small: float = 10.0
    together_rows: int = 200
    together_time: float = 0.3
    together_gap: float = 2e-5
    step: float = 0.9
    close: float = 1e-6


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """Small exchanges around a choice of rows.

    Attributes
    ----------
    near
        A row enters the relaxation before the exchanges if it costs more than the best of its
        case by at most this [share of the case's cards, or of a typical case's objective].
    penalty
        What load below a floor costs, as a multiple of what it is worth.
    cut_rounds
        How often cuts are added; a limit that does not depend on how busy the machine is.
    nodes
        Of branch and bound; a limit that does not depend on how busy the machine is.
    enough
        Distance up to which exchanges are searched [share of the bound].
    each
        Exchanges of a kind that are left open.
    rows
        Exchanges of all kinds that are left open: what branch and bound does in seconds.
    largest
        Cases that take more cards than this are no small change [cards].
    alike
        Numbers of cards from here on count as one kind [cards].
    left_out
        Cases that may be dropped, those first that lose the least.
    """

    near: float = 0.1
    penalty: float = 3.0
    cut_rounds: int = 10
    nodes: int = 50
    enough: float = 2e-5
    each: int = 4
    rows: int = 6_000
    largest: int = 16
    alike: int = 8
    left_out: int = 60


@dataclass(frozen=True, slots=True)
class PartSettings:
    """Parts of a plan that are solved again.

    Attributes
    ----------
    rows
        Rows of a part at first: what branch and bound improves in about a second.
    types
        Types of card of a part at first.
    nodes
        Of branch and bound in a part; a limit that does not depend on how busy the machine is.
    seconds
        The longest that a part may take [s].
    growth
        How often parts get larger, by a type of card and to twice the rows, before the search
        ends.
    smallest
        Change that counts as an improvement [share of the objective].
    patience, patience_with_few
        Parts of a size without any improvement after which parts get larger, or the search ends;
        and the same where few rows are open.
    """

    rows: int = 1_500
    types: int = 2
    nodes: int = 100
    seconds: float = 5.0
    growth: int = 2
    smallest: float = 1e-9
    patience: int = 10
    patience_with_few: int = 30


@dataclass(frozen=True, slots=True)
class OneMoreSettings:
    """The worth of one more card.

    Attributes
    ----------
    rows
        Up to so many rows all enter the relaxation.
    near
        Of more, a row enters if it costs more than the best of its case by at most this [share of
        the case's cards, or of a typical case's objective]; and where the relaxation is better
        with it.
    """

    rows: int = 20_000
    near: float = 0.01


@dataclass(frozen=True, slots=True)
class ExactSettings:
    """The search by levels.

    Attributes
    ----------
    given_up
        Share of a level's load that later levels may trade away, in a program that is not small.
    kept_back
        Part of that which a level leaves to the next ones, and each of these to its rounded plans:
        they miss what is aimed at by 1e-5 to 4e-4 of the load.
    level_time
        What a level may take [share of the remaining time]; what comes later is worth less. With
        60 % the last levels starved (6.1 % of priority 3 in `o-1000-0.5`), with equal shares for
        all 14.6 % were served.
    last_level_time
        The same for the last level, after which only the value comes. With 75 % instead of half,
        12 fleets in 30 s served up to 2.1 % more of it (`b-1000-4`, seed 1: 3.7 instead of 1.6 %),
        and none more than 0.03 % less.
    in_vain, in_vain_time
        A level before the last one ends when it has gained nothing for so many times what its best
        choice took, and for this share of its time. The second level of `h-1000-2` (seed 1) had
        its best choice after 0.1 s and went on for 11 s; with these the third one is served to
        97.2 instead of 77.4 %. With a factor of 4, `m-1000-2` (seed 5) would have ended before a
        gain that came after 5 s in vain.
    gap
        Distance from the bound at which a program is searched no further [share of the bound]. A
        level may end farther away, as far as later levels may trade its load away.
    far, far_time
        Where the first choice serves so much less of a level than its bound [share of the load],
        another search of the level has this share of its time, in place of dives near the
        choice. In 8 s the last level of `h-1000-2` (seed 8) is then served to 81.8 instead of
        39.2 %, of `m-1000-2` (seed 2) to 25.8 instead of 0 %. After the dives it had no time. Of 13
        such levels in 30 s, two gained 0.4 and 0.7 % in the 60 % of the time that it left at first;
        with 40 % in 8 s, this level of `m-1000-2` is served to 14.9 instead of 32.4 %. From 1
        instead of 2 % on, it took the time of dives that find more: 8 s served the last level of
        `b-1000-2` to 89.04 instead of 89.84 % (seed 1), and to 91.15 instead of 91.22 % (seed 4).
    steady
        Accept the running plan if its shortfall is at most this multiple of the tolerance.
    cut_rounds, cut_time
        Rounds of cuts in a stage at most, and what they may take [share of the remaining time].
    proof_time
        The MILP solver may have this long to prove that a plan is best [share of the remaining
        time], where few rows are open.
    parts_time, parts_time_of_few
        Parts are solved again for so long after that [share of the remaining time], if many rows
        are open, and if few. Few rows were given to the MILP solver at once; what it has not
        finished then takes it long. With all rows that matter given to it after the parts, the
        gap of 1,000 servers at demand 1 fell from 5.1e-4 to 3.5e-5.
    seconds_per_column
        Without so long the MILP solver finds nothing, and may end late [s].
    """

    given_up: float = GIVEN_UP
    kept_back: float = 0.5
    level_time: float = 0.5
    last_level_time: float = 0.75
    in_vain: float = 8.0
    in_vain_time: float = 0.4
    gap: float = 5e-5
    far: float = 0.02
    far_time: float = 0.7
    steady: float = 4.0
    cut_rounds: int = 40
    cut_time: float = 0.3
    proof_time: float = 0.1
    parts_time: float = 0.3
    parts_time_of_few: float = 0.8
    seconds_per_column: float = 1e-4
    sizes: ProgramSizes = ProgramSizes()
    prices: PriceSettings = PriceSettings()
    relaxation: RelaxationSettings = RelaxationSettings()
    packing: PackingSettings = PackingSettings()
    diving: DivingSettings = DivingSettings()
    exchanges: ExchangeSettings = ExchangeSettings()
    parts: PartSettings = PartSettings()
    one_more: OneMoreSettings = OneMoreSettings()


DEFAULTS = ExactSettings()
"""What is used where nothing else is given."""
