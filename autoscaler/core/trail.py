"""Steps of a trail in words: the same sentence in plans, explanations and log lines."""

from __future__ import annotations

from autoscaler.core.recommender import Step

_LEAVES_AS_IT_IS = frozenset({"minChange", "cooldown", "stale"})


def sentence(step: Step) -> str:
    """One step: `cpu: p95 of 3.2d of samples = 812m`, `cpu: maxAllowed caps 934m at 800m (…)`."""
    before, after = (None if n is None else step.resource.quantity(n) for n in (step.before, step.after))
    why = step.because if step.because.startswith(step.name) else f"{step.name} {step.because}".rstrip()
    if step.cap and step.before is not None and step.after is not None:
        if step.name in _LEAVES_AS_IT_IS:
            bite = f"keeps {after} instead of {before}"
        else:
            bite = f"caps {before} at {after}" if step.after < step.before else f"raises {before} to {after}"
        return f"{step.resource}: {step.name} {bite}" + (f" ({step.because})" if step.because else "")
    if after is None:
        return f"{step.resource}: {why}"
    if before is None:
        return f"{step.resource}: {why} = {after}"
    return f"{step.resource}: {why}: " + (f"stays {after}" if before == after else f"{before} -> {after}")
