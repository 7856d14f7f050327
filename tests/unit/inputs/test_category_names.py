"""Names of categories that may not be meant."""

import pytest

from train_pytorch_model.inputs.category_names import spelling_warnings, written_otherwise


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cat", "cat"),
        ("birds", "birds "),
        ("snow leopard", "Snow-Leopard"),
        ("snow_leopard", "snow  leopard"),
        ("Stra\u00dfe", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("\uff23at", "cat"),
    ],
)
def test_a_name_that_is_written_in_two_ways_is_told(one: str, other: str) -> None:
    (warning,) = spelling_warnings((one, "dog", other))
    assert f"{one!r} and {other!r}. Each is learned" in warning
    assert "dog" not in warning
    assert f"{one!r} is {other!r} there" in written_otherwise([one], ["dog", other])


@pytest.mark.parametrize("name", ["birds;nice", "birds, nice", "nice|Birds"])
def test_a_name_of_several_labels_is_told(name: str) -> None:
    (warning,) = spelling_warnings(("birds", name, "dogs"))
    assert f"several labels: {name!r}. Each" in warning


@pytest.mark.parametrize(
    "names",
    [
        ("C", "C++", "C#"),
        ("1", "-1", "1.5", "15"),
        ("class1", "class-1", "class 1 "),
        ("a;b", "c;d"),
        ("caf\u00e9", "cafe"),
        ("", " "),
    ],
)
def test_names_that_differ_are_not_told(names: tuple[str, ...]) -> None:
    assert list(spelling_warnings(names)) == []
    assert written_otherwise(names[:1], names[1:]) == ""
