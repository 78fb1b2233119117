from dataclasses import dataclass

import pytest

from coterie.algorithms import Facade
from coterie.core import algorithms, graphs
from coterie.core.graphs import Regular
from coterie.core.registry import Registry, field_docs
from coterie.errors import InputError, unknown
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
    assert "did you mean 'facade'?" in str(unknown("algorithm", "FACADE", ["dac", "facade"]))
    with pytest.raises(InputError, match=r"'degres'; did you mean 'degrees'\?"):
        shifts.build({"name": "rotation", "degres": 90})
    with pytest.raises(InputError, match=r"option of shift 'nothing'.*'size'"):
        shifts.build({"name": "nothing", "size": 3})


def test_a_misspelt_class_of_a_users_module_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match=rf"name in '{__name__}': 'Rotatoin'; .* 'Rotation'\?"):
        shifts.build(f"{__name__}:Rotatoin")
    with pytest.raises(InputError, match=r"name in 'coterie.errors': 'x'; known: InputError, at"):
        shifts.build("coterie.errors:x")


def test_a_table_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"a shift needs a name; got \{'degrees': 90\}"):
        shifts.build({"degrees": 90})


def test_an_option_of_the_wrong_type_is_named_with_what_was_got() -> None:
    with pytest.raises(InputError, match=r"graph 'regular': degree: .*whole number.*got 'many'"):
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


OPTIONS = sorted(
    (entry.name, option.name, option.doc)
    for registry in (graphs, objectives, optimizers, algorithms)
    for entry in registry.entries.values()
    for option in entry.options()
)


@pytest.mark.parametrize(("entry", "option", "doc"), OPTIONS)
def test_every_option_has_a_line_of_help(entry: str, option: str, doc: str) -> None:
    assert doc


def test_an_option_over_several_lines_has_its_line_of_help_too() -> None:
    @dataclass
    class Folded:
        first: str = (
            "a"  # inside
        )  # fmt: skip
        second: tuple[int, ...] = (
            1,
            2,
        )  # on the closing line # twice
        third: str = "# no comment"

    docs = field_docs(Folded)
    assert docs["first"].startswith("inside")
    assert docs["second"] == "on the closing line # twice"
    assert docs["third"] == ""


def test_options_that_a_class_has_from_another_have_their_line_of_help() -> None:
    @dataclass
    class Base:
        first: int = 1  # of the base
        second: int = 2  # of the base

    @dataclass
    class Derived(Base):
        second: int = 3  # of its own

    assert field_docs(Derived) == {"first": "of the base", "second": "of its own"}


def test_an_object_gives_the_table_that_makes_it() -> None:
    assert algorithms.spec(Facade(heads=3)) == {"name": "facade", "heads": 3}
    assert algorithms.spec(Facade(shared_core=False)) == {"name": "facade", "shared_core": False}
    assert shifts.spec(Rotation(90)) == {"name": "rotation", "degrees": 90}
    assert graphs.spec(Regular(fixed=True)) == {"name": "regular", "fixed": True}


def test_an_object_of_no_registered_class_has_no_table() -> None:
    with pytest.raises(InputError, match="Rotation is not a registered algorithm; register it"):
        algorithms.spec(Rotation())
    with pytest.raises(InputError, match=r"Facade is not .*; give an object"):
        algorithms.spec(Facade)


@pytest.mark.parametrize("option", ["heads", "degree", "warmup", "samples", "explore"])
def test_facade_refuses_options_below_their_bounds(option: str) -> None:
    with pytest.raises(InputError, match=rf"{option} must be at least [01], got -1"):
        algorithms.build({"name": "facade", option: -1})


def test_oracles_are_marked() -> None:
    registry: Registry[object] = Registry("algorithm")
    registry.register("seer", oracle=True)(Nothing)
    assert registry["seer"].oracle
    assert not algorithms["facade"].oracle
