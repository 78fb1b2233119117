from dataclasses import dataclass

import pytest

from coterie.algorithms import Facade
from coterie.core import algorithms, graphs
from coterie.core.graphs import Regular
from coterie.core.registry import Registry
from coterie.errors import InputError
from coterie.training import objectives, optimizers

shifts: Registry[object] = Registry("shift")


@shifts.register("rotation")
@shifts.register("upside-down", doc="Half a turn", degrees=180)
@dataclass(frozen=True)
class Rotation:
    """Turn the image.

    Not shown in lists.
    """

    degrees: float = 0  # counter-clockwise
    around: str = "centre"  # the point that stays # and this too


@shifts.register("nothing")
@dataclass(frozen=True)
class Nothing:
    """Leave it."""


def test_a_name_or_a_table_builds_the_same_thing() -> None:
    assert shifts.build("rotation") == Rotation() == shifts.build({"name": "rotation"})
    assert shifts.build({"name": "rotation", "degrees": 90}) == Rotation(90.0)


def test_a_misspelt_name_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError) as caught:
        algorithms.build("facad")
    assert str(caught.value) == (
        "unknown algorithm 'facad'; did you mean 'facade'? (coterie list algorithms)"
    )


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(InputError, match="unknown shift 'xyz'; known: nothing, rotation, upside"):
        shifts.build("xyz")


def test_a_misspelt_option_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match=r"'degres'; did you mean 'degrees'\?"):
        shifts.build({"name": "rotation", "degres": 90})
    with pytest.raises(InputError, match=r"option of shift 'nothing'.*'size'"):
        shifts.build({"name": "nothing", "size": 3})


def test_a_table_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"a shift needs a name; got \{'degrees': 90\}"):
        shifts.build({"degrees": 90})


def test_an_option_of_the_wrong_type_is_named_with_what_was_got() -> None:
    with pytest.raises(InputError, match=r"graph 'regular': degree: .*integer.*got 'many'"):
        graphs.build({"name": "regular", "degree": "many"})
    with pytest.raises(InputError, match=r"algorithm 'epidemic': variant: .*got 'both'"):
        algorithms.build({"name": "epidemic", "variant": "both"})


def test_building_does_not_change_the_table_it_is_given() -> None:
    spec = {"name": "rotation", "degrees": 90}
    shifts.build(spec)
    assert spec == {"name": "rotation", "degrees": 90}


def test_a_preset_changes_the_defaults_of_its_name_alone() -> None:
    assert shifts.build("upside-down") == Rotation(180)
    assert shifts.build({"name": "upside-down", "degrees": 5}) == Rotation(5)
    assert algorithms.build("idca") == Facade(shared_core=False)
    assert algorithms.build("facade") == Facade(shared_core=True)
    assert graphs.build("fixed-regular") == Regular(fixed=True)
    assert graphs.build({"name": "fixed-regular", "degree": 2}) == Regular(2, fixed=True)


def test_options_show_type_default_and_the_comment_beside_the_field() -> None:
    degrees, around = shifts["rotation"].options()
    assert (degrees.name, degrees.default) == ("degrees", 0)
    assert degrees.doc == "counter-clockwise"
    assert around.doc.startswith("the point that stays")
    assert shifts["upside-down"].options()[0].default == 180
    assert [o.type for o in graphs["regular"].options()] == ["int", "bool"]
    assert {o.name: o.default for o in algorithms["idca"].options()}["shared_core"] is False


def test_a_line_of_help_is_the_first_paragraph_or_what_was_registered() -> None:
    assert shifts["rotation"].doc == "Turn the image."
    assert shifts["upside-down"].doc == "Half a turn"


@pytest.mark.parametrize("registry", [graphs, objectives, optimizers, algorithms])
def test_everything_registered_has_a_line_of_help(registry: Registry) -> None:
    assert all(entry.doc for entry in registry.entries.values())


UNDOCUMENTED = {("epidemic", "variant"), ("facade", "scoring"), ("idca", "scoring")}
OPTIONS = sorted(
    (entry.name, option.name, option.doc)
    for registry in (graphs, objectives, optimizers, algorithms)
    for entry in registry.entries.values()
    for option in entry.options()
)


@pytest.mark.parametrize(
    ("entry", "option", "doc"), [o for o in OPTIONS if o[:2] not in UNDOCUMENTED]
)
def test_every_option_has_a_line_of_help(entry: str, option: str, doc: str) -> None:
    assert doc


@pytest.mark.xfail(
    strict=True, reason="field_docs misses the comment of a field that spans several lines"
)
def test_an_option_over_several_lines_has_its_line_of_help_too() -> None:
    assert all(doc for entry, option, doc in OPTIONS if (entry, option) in UNDOCUMENTED)


def test_oracles_are_marked() -> None:
    registry: Registry[object] = Registry("algorithm")
    registry.register("seer", oracle=True)(Nothing)
    assert registry["seer"].oracle
    assert not algorithms["facade"].oracle
