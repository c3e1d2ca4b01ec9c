"""What reading the past of the selected pods costs Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from autoscaler.diagnosis.findings import Check, Finding, Status, counted

_TOO_MUCH = "raise prometheus.backfillSamples if Prometheus can bear it, or shorten metrics.lookback"


def cost(containers: int, samples: int, most: int) -> Iterator[Finding]:
    """So many samples make up the look-backs of all containers, where more than `most`, which are read, would be."""
    if samples > most:
        detail = (
            f"the look-backs of {counted(containers, 'container')} are {samples:,} samples, of which {most:,} are read"
        )
        detail = f"{detail}: RangeTruncated keeps pods from being made smaller"
        yield Finding(Check.METRICS, Status.WARNING, detail, _TOO_MUCH)
