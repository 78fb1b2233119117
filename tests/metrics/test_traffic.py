import pytest

from coterie.metrics import traffic


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_999, "1.00 MB"),
        (17_250_000, "17.2 MB"),
        (1_725_000_000, "1.73 GB"),
        (2e18, "2000 PB"),
    ],
)
def test_bytes_have_three_digits_and_a_unit(count: float, text: str) -> None:
    assert traffic.format_bytes(count) == text


def test_the_unit_of_a_count_is_the_one_it_is_written_in() -> None:
    assert traffic.unit(1_725_000_000) == (1e9, "GB")
    assert traffic.unit(0) == (1, "B")
