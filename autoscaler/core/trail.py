"""Steps of a trail in words: the same sentence in plans, explanations and log lines."""

from __future__ import annotations

from autoscaler.core.model import Resource
from autoscaler.core.recommender import Step

_MIB = 1 << 20
_KEEPS = "keeps {after} instead of {before}"
_BITES = {
    "minChange": _KEEPS,
    "cooldown": _KEEPS,
    "stale": _KEEPS,
    "recovering": _KEEPS,
    "hpa": _KEEPS,
    "memoryLimit": _KEEPS,
    "decreaseFirst": _KEEPS,
    **dict.fromkeys(("lowCoverage", "scrapeGap", "partialResponse", "counterResetStorm"), _KEEPS),
    **dict.fromkeys(("insufficientHistory", "rateWindowTooShort", "sourceChanged"), _KEEPS),
    **dict.fromkeys(("rangeTruncated", "resolutionReduced", "gpuUnattributed", "gpuUtilizationUnknown"), _KEEPS),
    "maxStep": "stops at {after} on the way to {before}",
}


def sentence(step: Step) -> str:
    """One step: `cpu: usage p95 of 3.2d of samples = 812m`, `cpu: maxAllowed caps 934m at 800m (…)`.

    Amounts of memory between two MiB are rounded to a tenth: here they explain, they are not asked for.
    """
    before, after = (None if n is None else _text(step.resource, n) for n in (step.before, step.after))
    why = step.because if step.because.startswith(step.name) else f"{step.name} {step.because}".rstrip()
    if step.cap and step.before is not None and step.after is not None:
        plain = "caps {before} at {after}" if step.after < step.before else "raises {before} to {after}"
        bite = _BITES.get(step.name, plain).format(before=before, after=after)
        return f"{step.resource}: {step.name} {bite}" + (f" ({step.because})" if step.because else "")
    if after is None:
        return f"{step.resource}: {why}"
    if before is None:
        return f"{step.resource}: {why} = {after}"
    return f"{step.resource}: {why}: " + (f"stays {after}" if before == after else f"{before} -> {after}")


def _text(resource: Resource, amount: int) -> str:
    if resource is Resource.MEMORY and amount > _MIB and amount % _MIB:
        return f"{amount / _MIB:.1f}Mi"
    return resource.quantity(amount)
