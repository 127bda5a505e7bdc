"""From rounds and the webhook's histogram to figures (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster.rounds import Round
from benchmarks.telling import Meaning, Value, spread

MEANINGS: Final = {
    "bind_ratio_on_off": Meaning(
        text="time until all are bound, with the webhook divided by without", most=1.05
    ),
    "cpu_ratio_on_off": Meaning(text="the same of processor seconds of all programs"),
    "bound_per_s": Meaning(text="pods, with the webhook"),
    "bound_per_s_off": Meaning(text="pods, without"),
    "webhook_p99_ms": Meaning(text="the webhook's own time for a review"),
    "load_average": Meaning(text="of the machine at the end"),
}
_BUCKET: Final = "gpu_sharing_webhook_review_duration_seconds_bucket"


def figures(rounds: Sequence[Round], p99_ms: float, **about: Value) -> dict[str, Value]:
    """The keys of the report.

    Rounds come in pairs, one without and one with the webhook, in turning order; the ratio is the
    median over pairs, so that what else the machine does hits both sides of each. The ratio of
    processor seconds says the same of a busy machine with less noise.
    """
    pairs = [rounds[at : at + 2] for at in range(0, len(rounds), 2)]
    ratios = [ratio(pair) for pair in pairs]
    cpu = [{each.webhook: sum(each.cpu_s.values()) for each in pair} for pair in pairs]
    on = [each for each in rounds if each.webhook]
    off = [each for each in rounds if not each.webhook]
    return {
        **about,
        "bind_ratio_on_off": round(median(ratios), 4),
        **spread("bind_ratio_on_off", ratios, digits=4),
        "cpu_ratio_on_off": round(median(each[True] / each[False] for each in cpu), 4),
        **_cpu_ms_per_pod(on, "on"),
        **_cpu_ms_per_pod(off, "off"),
        "bound_per_s": round(median(each.pods / each.bound_s for each in on), 1),
        "bound_per_s_off": round(median(each.pods / each.bound_s for each in off), 1),
        "created_per_s": round(median(each.pods / each.created_s for each in on), 1),
        "created_per_s_off": round(median(each.pods / each.created_s for each in off), 1),
        "webhook_p99_ms": round(p99_ms, 3),
    }


def _cpu_ms_per_pod(rounds: Sequence[Round], which: str) -> dict[str, float]:
    """Processor milliseconds that each program spent on a pod, from creation to binding."""
    pods = sum(each.pods for each in rounds)
    return {
        f"cpu_ms_per_pod_{which}_{name.replace('-', '_')}": round(
            1000 * sum(each.cpu_s[name] for each in rounds) / pods, 3
        )
        for name in sorted(rounds[0].cpu_s)
    }


def ratio(pair: Sequence[Round]) -> float:
    """Time until all are bound with the webhook, in times of that without it."""
    by_kind = {each.webhook: each.bound_s for each in pair}
    return by_kind[True] / by_kind[False]


def p99_ms(metrics: str) -> float:
    """Milliseconds that 99 % of reviews stay below, interpolated as Prometheus does."""
    return 1000 * quantile(_buckets(metrics), 0.99)


def _buckets(metrics: str) -> dict[float, float]:
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == _BUCKET
    }


def quantile(buckets: Mapping[float, float], share: float) -> float:
    """A quantile of cumulative buckets by their upper bounds, linear inside a bucket.

    Source: Prometheus documentation, ``histogram_quantile``: above the last finite bound it is
    that bound.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]]
    wanted, below, at = share * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted and bound != float("inf"):
            inside = buckets[bound] - below
            return at + (bound - at) * ((wanted - below) / inside if inside else 1.0)
        if bound != float("inf"):
            below, at = buckets[bound], bound
    return at
