"""Changes in words, the systems they lead to, and what then is decided differently."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.changes import parse_change, quote_name
from inferno_optimizer.explain.comparison import compare, served
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import (
    Accelerator,
    Allocation,
    DecodeParameters,
    Load,
    Options,
    PerformanceProfile,
    PrefillDecodeParameters,
    SaturationPolicy,
    Server,
    ServiceClass,
    System,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.wire.codec import decode_system
from inferno_optimizer.wire.what_if import apply_changes
from tests.generate import fleet
from tests.unit.optimizer.systems import Demand, accelerators, system_of

MODEL = "llama-3.1-8b"


def server(name: str = "chat", service_class: str = "Premium") -> Server:
    current = Allocation("A100", 2, cost=80, load=Load(60, 500))
    return Server(name, service_class, MODEL, current)


SYSTEM = System(
    accelerators=(Accelerator("A100", "A100", 40), Accelerator("2xG2", "G2", 50, 2)),
    profiles=(
        PerformanceProfile(MODEL, "A100", DecodeParameters(20, 0.4), 32, 512),
        PerformanceProfile("granite_13b", "A100", DecodeParameters(20, 0.4), 32, 512),
    ),
    classes=(
        ServiceClass("Premium", 1, {MODEL: Target(40, 500)}),
        ServiceClass("Free", 3, {MODEL: Target(80, 1000), "granite_13b": Target(90)}),
    ),
    servers=(server(), server("batch", "Free")),
    capacity={"A100": 5},
    options=Options(time_limit=7),
)


def changed(*texts: str, system: System = SYSTEM) -> System:
    return apply_changes(system, map(parse_change, texts)).system


def with_load(arrival_rate: float = 60, tokens: int = 500) -> Server:
    current = replace(SYSTEM.servers[0].current, load=Load(arrival_rate, tokens))
    return replace(SYSTEM.servers[0], current=current)


def with_target(**targets: float) -> ServiceClass:
    return replace(SYSTEM.classes[0], targets={MODEL: replace(Target(40, 500), **targets)})


ROUND_ROBIN = SaturationPolicy.ROUND_ROBIN
SERVERS = {
    "server.chat.load.arrivalRate=300": with_load(300),
    "server.chat.currentAlloc.load.arrivalRate=300": with_load(300),
    "server.chat.load.arrivalRate+=30": with_load(90),
    "server.chat.load.arrivalRate-=30.5": with_load(29.5),
    "server.chat.load.arrivalRate*=1.5": with_load(90),
    "server.chat.load.avgLength=128": with_load(tokens=128),
    "server.chat.load.avgLength*=0.333": with_load(tokens=167),  # 166.5, halves up
    "server.chat.minNumReplicas=3": replace(SYSTEM.servers[0], min_replicas=3),
    "server.chat.maxBatchSize=16": replace(SYSTEM.servers[0], max_batch_size=16),
    "server.chat.keepAccelerator=true": replace(SYSTEM.servers[0], keep_accelerator=True),
    "server.chat.class=Free": replace(SYSTEM.servers[0], service_class="Free"),
    "server.chat.model=granite_13b": replace(SYSTEM.servers[0], model="granite_13b"),
    'server.chat.model="granite_13b"': replace(SYSTEM.servers[0], model="granite_13b"),
    ' server."chat".minNumReplicas = 3 ': replace(SYSTEM.servers[0], min_replicas=3),
}


CLASSES = {
    "class.Premium.priority=2": replace(SYSTEM.classes[0], priority=2),
    f"class.Premium.{MODEL}.slo-itl=20": with_target(itl_ms=20),
    f'class.Premium."{MODEL}".slo-ttw*=2': with_target(wait_ms=1000),
    f"class.Premium.{MODEL}.slo-ttft=300": with_target(ttft_ms=300),
    "class.Premium.*.slo-tps=100": with_target(tokens_per_second=100),
}


OPTIONS = {
    "unlimited=true": Options(unlimited=True, time_limit=7),
    "milpSolver=true": Options(milp=True, time_limit=7),
    "heterogeneous=true": Options(heterogeneous=True, time_limit=7),
    "delayedBestEffort=true": Options(delayed_best_effort=True, time_limit=7),
    "holdUndecided=true": Options(hold_undecided=True, time_limit=7),
    "noSwaps=true": Options(no_swaps=True, time_limit=7),
    "priorityTolerance=0.01": Options(priority_tolerance=0.01, time_limit=7),
    "saturationPolicy=RoundRobin": Options(saturation_policy=ROUND_ROBIN, time_limit=7),
}


CAPACITIES = {
    "capacity.A100=8": {"A100": 8},
    "capacity.A100+=4": {"A100": 9},
    "capacity.A100-=5": {"A100": 0},
    "capacity.A100*=1.5": {"A100": 8},  # 7.5, halves up
    "capacity.G2=3": {"A100": 5, "G2": 3},  # a type that no capacity is given for
    "capacity.G2+=3": {"A100": 5, "G2": 3},
    "capacity.**=2": {"A100": 10},
    "capacity.*=2": {"A100": 2},
}


def with_data(model: str, alpha: float, beta: float) -> System:
    profiles = (
        replace(p, parameters=DecodeParameters(alpha, beta)) if p.model == model else p
        for p in SYSTEM.profiles
    )
    return replace(SYSTEM, profiles=tuple(profiles))


MODELS = {
    f"model.{MODEL}.A100.alpha=10": with_data(MODEL, 10, 0.4),
    f'model."{MODEL}".A100.beta*=2': with_data(MODEL, 20, 0.8),
    "model.granite_13b.*.alpha+=1": with_data("granite_13b", 21, 0.4),
    f"model.{MODEL}.A100.maxBatchSize=64": replace(
        SYSTEM, profiles=(replace(SYSTEM.profiles[0], max_batch_size=64), SYSTEM.profiles[1])
    ),
    "model.*.A100.accCount=2": replace(
        SYSTEM, profiles=tuple(replace(p, accelerator_count=2) for p in SYSTEM.profiles)
    ),
}


CHANGED = {
    **{t: replace(SYSTEM, servers=(s, SYSTEM.servers[1])) for t, s in SERVERS.items()},
    **{t: replace(SYSTEM, classes=(c, SYSTEM.classes[1])) for t, c in CLASSES.items()},
    **{f"optimizer.{t}": replace(SYSTEM, options=o) for t, o in OPTIONS.items()},
    **{text: replace(SYSTEM, capacity=cards) for text, cards in CAPACITIES.items()},
    **MODELS,
    "accelerator.A100.cost=44": replace(
        SYSTEM, accelerators=(replace(SYSTEM.accelerators[0], cost=44), SYSTEM.accelerators[1])
    ),
}


@pytest.mark.parametrize("text", CHANGED)
def test_what_is_named_and_nothing_else_is_changed(text: str) -> None:
    assert changed(text) == CHANGED[text]


NEW = ("accelerator.B200.type=B200", "accelerator.B200.cost=500")


def test_type_and_cost_add_an_accelerator_whatever_comes_first() -> None:
    after = changed(
        "capacity.B200=8",
        "accelerator.2xB200.multiplicity=2",
        *NEW,
        *(text.replace(".B200", ".2xB200") for text in NEW),
    )

    assert after.accelerators == (
        *SYSTEM.accelerators,
        Accelerator("2xB200", "B200", 500, 2),
        Accelerator("B200", "B200", 500),
    )
    assert after.capacity == {"A100": 5, "B200": 8}
    assert after.profiles == SYSTEM.profiles


def test_a_model_performs_on_a_new_accelerator_as_on_a_known_one_and_then_as_is_said() -> None:
    texts = ("model.*.B200=A100", f"model.{MODEL}.B200.alpha*=0.5")

    after = changed(*NEW, *texts)

    fast, same = (replace(profile, accelerator="B200") for profile in SYSTEM.profiles)
    fast = replace(fast, parameters=DecodeParameters(10, 0.4))
    assert after.profiles == (*SYSTEM.profiles, fast, same)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("capacity.A100=5", "the value is already 5"),
        ("capacity.G2=0", "the value is already 0"),
        ("capacity.A100+=0", "changes nothing"),
        ("server.*.class=Free", None),
        ("server.batch.class=Free", "the value is already Free"),
        ("class.Premium.*.slo-itl=40.0", "the value is already 40.0"),
        ("optimizer.unlimited=false", "the value is already false"),
        (f"model.{MODEL}.A100=A100", "the value is already A100"),
    ],
)
def test_a_change_to_what_is_so_already_is_told(text: str, message: str | None) -> None:
    _, idle = apply_changes(SYSTEM, [parse_change(text)])

    assert idle == (() if message is None else (f"{text}: {message}",))


def test_a_star_stands_for_every_name() -> None:
    twice = changed("server.*.load.arrivalRate*=2", "class.*.*.slo-itl*=2")

    assert [s.load.arrival_rate for s in twice.servers] == [120, 120]
    assert [[t.itl_ms for t in c.targets.values()] for c in twice.classes] == [[80], [160, 180]]


def test_changes_are_made_one_after_the_other() -> None:
    assert changed("capacity.A100+=1", "capacity.A100*=3").capacity == {"A100": 18}
    assert changed("capacity.A100*=3", "capacity.A100+=1").capacity == {"A100": 16}


def test_cards_that_are_held_stay_so_whatever_is_changed() -> None:
    held = replace(SYSTEM, held={"A100": 2})

    after = apply_changes(held, [parse_change("capacity.A100=8")]).system

    assert (after.capacity, after.held) == ({"A100": 8}, {"A100": 2})


def test_no_change_leaves_a_large_system_as_it_is() -> None:
    system = decode_system(fleet(60, 20, seed=8, demand=1))
    name = system.servers[0].name

    assert changed() == SYSTEM
    assert changed(f"server.{name}.load.arrivalRate*=1", system=system) == system


@pytest.mark.parametrize(
    "parameters", [PrefillDecodeParameters(20, 0.4, 30, 0.1), TokenBudgetParameters(8, 0.02, 1e-4)]
)
def test_loads_in_tokens_and_parameters_of_later_generations_are_changed(
    parameters: PrefillDecodeParameters | TokenBudgetParameters,
) -> None:
    profile = replace(SYSTEM.profiles[0], parameters=parameters)
    load = Load(60, input_tokens=200, output_tokens=500)
    told = replace(SYSTEM.servers[0], current=replace(SYSTEM.servers[0].current, load=load))
    system = replace(SYSTEM, profiles=(profile,), servers=(told,))
    group = "prefillParms" if isinstance(parameters, PrefillDecodeParameters) else "perfParms"

    after = changed("server.chat.load.avgInTokens*=2", system=system)
    faster = changed(f"model.{MODEL}.A100.{group}.gamma=15", system=system)

    longer = replace(told, current=replace(told.current, load=replace(load, input_tokens=400)))
    assert after == replace(system, servers=(longer,))
    assert faster.profiles == (replace(profile, parameters=replace(parameters, gamma=15)),)


def named(*names: str) -> System:
    """Servers of these names, at 60 requests/min each."""
    return replace(SYSTEM, servers=tuple(server(name) for name in names))


def rates(system: System) -> dict[str, float]:
    return {s.name: s.load.arrival_rate for s in system.servers}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.b.load.arrivalRate", "a.b"),
        ('"a.b".load.arrivalRate', "a.b"),
        ('"a".load.arrivalRate', "a"),
        ("a.load.arrivalRate", "a"),  # a.load has no field arrivalRate
        ("a.load.load.arrivalRate", "a.load"),
        ('"*".load.arrivalRate', "*"),
        ("with space.load.arrivalRate", "with space"),
        ('"say \\"x=1\\"".load.arrivalRate', 'say "x=1"'),
    ],
)
def test_a_name_is_the_longest_that_leaves_a_field(text: str, name: str) -> None:
    system = named("a", "a.b", "a.load", "*", "with space", 'say "x=1"')

    after = rates(changed(f"server.{text}=3", system=system))

    assert after == {**rates(system), name: 3}


@given(st.lists(st.text(), min_size=1, max_size=4, unique=True))
@example(["x", "x.load", "x.load.arrivalRate"])
@example(["*", "", ".0", "a..b", "+", '"', "\\", "\n", "a=b"])
def test_any_name_in_the_quotes_that_it_needs_is_found_again(names: list[str]) -> None:
    system = named(*names)

    for name in names:
        after = rates(changed(f"server.{quote_name(name)}.load.arrivalRate+=1", system=system))
        assert after == {**rates(system), name: 61}


@given(st.from_regex(r"\w+([.+*-]\w+)*", fullmatch=True))
def test_ordinary_names_need_no_quotes(name: str) -> None:
    assert rates(changed(f"server.{name}.load.arrivalRate=3", system=named(name))) == {name: 3}


@given(st.text(st.characters(exclude_characters="=")))
def test_whatever_is_no_change_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        changed(text)

    assert str(error.value).startswith(f"{text}: expected KIND.NAME.FIELD=VALUE")


REFUSED = {
    "capacity": "expected KIND.NAME.FIELD=VALUE",
    "capacity.A10=8": "no type of card is named 'A10'; did you mean A100? (known: A100, G2)",
    "capacity.A100=x": "expected a number, not 'x'",
    "capacity.A100=8.5": "expected an integer, not '8.5'",
    "capacity.A100+=nan": "expected a finite number, not 'nan'",
    "capacity.A100-=6": "capacity 'A100': count: -1 is negative",
    "capacity.A100*=1e300": "capacity 'A100': count: expected an integer",
    "serer.chat.class=Free": "no kind of object is named 'serer'; did you mean server?",
    "server.chta.minNumReplicas=1": "no server is named 'chta'; did you mean chat?",
    "server.chta.load.arrivalRate=1": "no server is named 'chta'; did you mean chat?",
    "model.llama.A100.alpha=1": "no model is named 'llama'; did you mean llama-3.1-8b?",
    "model.granite_13b.A100.gamma=1": "no field of model 'granite_13b' is named 'A100.gamma'",
    "model.granite_13b.A100.name=x": "no field of model 'granite_13b' is named 'A100.name'",
    "model.granite_13b.A100.acc=2xG2": "no accelerator is named 'A100.acc'",
    "model.granite_13b.A100.alpha=-1": "model 'granite_13b' (A100): alpha: -1 is negative",
    "model.granite_13b.B200=A100": "no accelerator is named 'B200' (known: A100, 2xG2)",
    "model.granite_13b.A100=2xG2": "no field of model 'granite_13b' is named 'A100'",
    "accelerator.A10.cost=4": (
        "no accelerator is named 'A10'; did you mean A100? (known: A100, 2xG2);"
        " to add it, also set its type"
    ),
    "accelerator.B200.multiplicity=2": "to add it, also set its type and its cost",
    "accelerator.B200.speed=2": "no accelerator is named 'B200' (known: A100, 2xG2)",
    "accelerator.B200.cost+=2": "no accelerator is named 'B200' (known: A100, 2xG2)",
    "accelerator.A100.type=A10": "no type is named 'A10'; did you mean A100?",
    "server.chat.load.rate=3": "no field of server 'chat' is named 'load.rate'; did you mean",
    "server.chat=3": "no field of server 'chat' is named ''",
    "server.chat.name=x": "no field of server 'chat' is named 'name'",
    "server.*.speed=3": "no field of server 'chat' is named 'speed'",
    "server.chat.load.arrivalRate*=1e308": "the result is not finite",
    "server.chat.class=Premum": "no class is named 'Premum'; did you mean Premium?",
    "server.chat.model=llama": "no model is named 'llama'",
    "server.chat.class+=x": "+= is for numbers only",
    "server.chat.keepAccelerator=1": "expected true or false, not '1'",
    'server."a\\q".class=Free': "is no quoted text",
    "class.Free.llama.slo-itl=1": "no field of service class 'Free' is named 'llama.slo-itl'",
    "optimizer.milp=true": "no option is named 'milp'; did you mean milpSolver?",
    "optimizer.saturationPolicy=Robin": "no saturationPolicy is named 'Robin'; did you mean",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_change_that_cannot_be_made_is_named_with_what_is_known(text: str) -> None:
    with pytest.raises(InputError) as error:
        changed(text)

    assert str(error.value).startswith(f"{text}: ")
    assert REFUSED[text] in str(error.value)


def test_what_was_wrong_before_is_no_fault_of_a_change() -> None:
    broken = replace(SYSTEM, servers=(server("chat", "Gone"), server("batch", "Free")))

    assert changed("server.batch.minNumReplicas=1", system=broken).servers[1].min_replicas == 1


def test_solutions_of_the_same_system_do_not_differ() -> None:
    system = decode_system(fleet(60, 20, seed=8, demand=2))

    assert compare(optimize(system), optimize(system)).differences == ()


def test_one_more_card_is_told_for_the_server_that_gets_it() -> None:
    demands = [Demand("a", {"X": 1}), Demand("b", {"X": 2}, priority=2)]
    system = system_of(demands, accelerators(X=10), {"X": 2})

    comparison = compare(optimize(system), optimize(changed("capacity.X=3", system=system)))

    assert [difference.server for difference in comparison.differences] == ["b"]
    assert (served(comparison.before), served(comparison.after)) == (1, 2)
    assert comparison.after.cost - comparison.before.cost == 20


def test_another_price_of_the_same_cards_is_a_difference() -> None:
    system = system_of([Demand("a", {"X": 1})], accelerators(X=10), {"X": 1})
    dearer = changed("accelerator.X.cost+=1", system=system)

    comparison = compare(optimize(system), optimize(dearer))

    assert [difference.server for difference in comparison.differences] == ["a"]


@pytest.mark.parametrize(("load", "differences"), [(61, 1), (60, 0)])
def test_a_server_short_of_cards_differs_by_its_latencies_too(
    load: float, differences: int
) -> None:
    options = Options(saturation_policy=SaturationPolicy.PRIORITY_EXHAUSTIVE)
    system = system_of([Demand("a", {"X": 3})], accelerators(X=10), {"X": 1}, options)
    after = changed(f"server.a.load.arrivalRate={load}", system=system)

    assert len(compare(optimize(system), optimize(after)).differences) == differences
