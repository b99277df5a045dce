"""Items, paths, ids and lists are the same thing in different coordinates."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camel import InputError
from camel.scenarios import Level, RolePlay, Scenario, load

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
END = RolePlay(assistant="<ALPHA>", user="User", task="Do it")


@st.composite
def scenarios(draw: st.DrawFn, largest: int = 10_000) -> Scenario:
    """Any chain: each level mentions any of those before it."""
    levels: list[Level] = []
    for place in range(draw(st.integers(1, 5))):
        mentioned = draw(st.sets(st.sampled_from(NAMES[:place]))) if place else set()
        prompt = "List <COUNT> for " + " and ".join(f"<{name.upper()}>" for name in sorted(mentioned))
        levels.append(Level(name=NAMES[place], count=draw(st.integers(1, largest)), prompt=prompt))
    return Scenario(name="any", title="Any", levels=tuple(levels), end=END)


@given(scenarios(), st.data())
def test_the_path_and_the_id_give_the_index_back(scenario: Scenario, data: st.DataObject):
    index = data.draw(st.integers(0, scenario.count - 1))
    path = scenario.path(index)
    assert all(0 <= place < level.count for place, level in zip(path, scenario.levels, strict=True))
    number = 0
    for place, level in zip(path, scenario.levels, strict=True):
        number = number * level.count + place
    assert number == index
    assert [int(part) - 1 for part in scenario.id(index).split("_")] == [*path]


@given(scenarios(largest=4))
def test_small_scenarios_count_off(scenario: Scenario):
    paths = list(product(*(range(level.count) for level in scenario.levels)))
    assert [scenario.path(index) for index in range(scenario.count)] == paths
    assert len({scenario.id(index) for index in range(scenario.count)}) == scenario.count


@given(scenarios(), st.data())
def test_a_list_is_shared_by_the_items_with_its_parents(scenario: Scenario, data: st.DataObject):
    path = scenario.path(data.draw(st.integers(0, scenario.count - 1)))
    for place, level in enumerate(scenario.levels):
        number = scenario.list_index(level.name, path)
        assert 0 <= number < scenario.lists(level.name)
        parents = scenario.list_path(level.name, number)
        assert parents == {name: path[NAMES.index(name)] for name in scenario.needs(level.name)}
        for needed in scenario.needs(level.name):
            assert NAMES.index(needed) < place
            # What a parent depends on, its child depends on too.
            assert set(scenario.needs(needed)) <= set(scenario.needs(level.name))


@given(scenarios(largest=50), st.data())
def test_facts_come_from_the_right_lists(scenario: Scenario, data: st.DataObject):
    def lists(level: str, number: int) -> list[str]:
        """Items that know everything about themselves."""
        parents = scenario.list_path(level, number)
        return [f"{level}{place}{parents}" for place in range(scenario.level(level).count)]

    index = data.draw(st.integers(0, scenario.count - 1))
    path = scenario.path(index)
    facts = scenario.facts(index, lists)
    assert list(facts) == [level.name for level in scenario.levels]
    for place, level in enumerate(scenario.levels):
        number = scenario.list_index(level.name, path)
        parents = scenario.list_path(level.name, number)
        assert facts[level.name] == f"{level.name}{path[place]}{parents}"
        assert scenario.list_facts(level.name, number, lists) == {name: facts[name] for name in parents}


def test_the_papers_numbers():
    society = load("ai_society")
    assert society.count == 25_000
    assert (society.id(0), society.id(24_999)) == ("001_001_001", "050_050_010")
    assert [society.lists(level.name) for level in society.levels] == [1, 1, 2_500]
    math = load("math")
    assert math.count == 50_000
    assert [math.lists(level.name) for level in math.levels] == [1, 25, 625]
    assert math.needs("problem") == ("topic", "subtopic")


def test_hundreds_of_millions_are_only_numbers():
    large = load("ai_society").resized({"assistant_role": 2_000, "user_role": 3_000, "task": 50})
    assert large.count == 300_000_000
    assert large.id(299_999_999) == "2000_3000_050"
    assert large.list_index("task", large.path(299_999_999)) == 5_999_999


def test_a_level_depends_on_what_its_parents_depend_on():
    levels = (
        Level(name="topic", count=3, prompt="List <COUNT> topics"),
        Level(name="subtopic", count=4, prompt="List <COUNT> parts of <TOPIC>"),
        Level(name="problem", count=5, prompt="List <COUNT> problems on <SUBTOPIC>"),
    )
    end = RolePlay(assistant="Teacher", user="Pupil", task="<PROBLEM>")
    scenario = Scenario(name="s", title="S", levels=levels, end=end)
    assert scenario.needs("problem") == ("topic", "subtopic")
    assert scenario.lists("problem") == 12


def test_given_items_need_no_lists():
    levels = (Level(name="alpha", count=2, items=("a", "b", "c")),)
    scenario = Scenario(name="s", title="S", levels=levels, end=END)
    assert scenario.asked == ()
    assert scenario.facts(1, lambda level, number: pytest.fail("asked for a list")) == {"alpha": "b"}
    assert scenario.resized({"alpha": 3}).count == 3
    with pytest.raises(InputError, match="only 3"):
        scenario.resized({"alpha": 4})


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"role": 2}, "assistant_role, user_role, task"),
        ({"task": 0}, "task.* not 0"),
        ({"task": True}, "not True"),
        ({"task": 1.5}, "not 1.5"),
    ],
)
def test_resizing_wrongly(counts: dict[str, int], words: str):
    with pytest.raises(InputError, match=words):
        load("ai_society").resized(counts)


def test_resizing_leaves_the_original_alone():
    society = load("ai_society")
    before = society.count
    small = society.resized({"assistant_role": 2, "user_role": 2, "task": 2})
    assert (small.count, society.count) == (8, before)
    assert small.shape == "2 × 2 × 2 = 8 conversations"


@pytest.mark.parametrize("index", [-1, 25_000])
def test_no_item_beyond_the_last(index: int):
    with pytest.raises(InputError, match="24,999"):
        load("ai_society").path(index)


def test_a_short_list_is_said():
    with pytest.raises(InputError, match=r"assistant_role.* 1 .*50"):
        load("ai_society", "asked").facts(24_999, lambda level, number: ["only one"])


def test_fingerprint_changes_with_what_is_generated():
    society = load("ai_society")
    prints = {
        society.fingerprint(),
        society.resized({"task": 2}).fingerprint(),
        load("misalignment").fingerprint(),
        msgspec.structs.replace(society, labels=("x",)).fingerprint(),
    }
    level = msgspec.structs.replace(society.levels[0], prompt="List <COUNT> roles")
    changed = msgspec.structs.replace(society, levels=(level, *society.levels[1:]))
    prints.add(changed.fingerprint())
    assert len(prints) == 5
    assert load("ai_society").fingerprint() == society.fingerprint()
    assert msgspec.structs.replace(society, title="Other").fingerprint() == society.fingerprint()


def test_a_scenario_can_be_saved_and_read_back():
    for name in ("ai_society", "math", "translation"):
        scenario = load(name)
        again = msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)
        assert again == scenario
        assert again.fingerprint() == scenario.fingerprint()
