from autoscaler.diagnosis.findings import Status
from autoscaler.diagnosis.past import cost


def test_look_backs_that_are_more_than_is_read_are_a_warning_with_the_numbers() -> None:
    assert list(cost(2000, 100, 100)) == []
    (found,) = cost(2000, 123_456_789, 100_000_000)
    assert found.status is Status.WARNING
    assert "2,000 containers are 123,456,789 samples, of which 100,000,000 are read" in found.detail
    assert "metrics.lookback" in found.remedy
