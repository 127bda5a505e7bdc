"""The report: tables for people, and one flat object of figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.webhook.loads import Latency
from benchmarks.webhook.restarts import Survived
from benchmarks.webhook.reviews import ReviewInput
from benchmarks.webhook.rounds import Figure, Rounds

OURS: Final = "ours"
THEIRS: Final = {
    "go_idiom": "Go, controller-runtime, whole-pod diff",
    "go_hand": "Go, controller-runtime, hand-made patch",
    "go_lean": "Go, net/http, minimal structs",
}
SERVERS: Final = (OURS, *THEIRS)
COMPARED: Final = {
    "typical": "pods of one workload",
    "unlike": "no pod like another",
    "novel": "no pod asks like another",
}
"""Reviews that ratios are told of."""
NEW_CONNECTION: Final = "new connection"
_TITLES: Final = {OURS: "gpu-sharing webhook", **THEIRS}
_MOST_MB: Final = 120
_TARGETS: Final = {"go_idiom": 1 / 8, "go_lean": 1.5}


@dataclass(slots=True, kw_only=True)
class Results:
    """All that a run measured."""

    cpu: dict[str, Rounds] = field(default_factory=dict)
    """Microseconds of CPU by kind of review, and for a new connection each."""
    latencies: dict[tuple[str, float], list[Latency]] = field(default_factory=dict)
    """By server and rate."""
    growth: Figure | None = None
    resident_mb: dict[str, float] = field(default_factory=dict)
    crowd_mb: float = 0.0
    """Resident memory with 10,000 namespaces."""
    large_mb: float = 0.0
    """The same with 10,000 profiles and nodes as well."""
    survived: Survived | None = None


def figures(results: Results) -> dict[str, float]:
    """One flat object; each ratio is ours divided by theirs, with its spread beside it."""
    typical, many = results.cpu["typical"], results.cpu["env1500"]
    flat: dict[str, float] = {}
    for name in THEIRS:
        _spread(flat, f"cpu_ratio_{name}", typical.ratio(OURS, name))
        for kind in ("unlike", "novel"):
            _spread(flat, f"cpu_ratio_{name}_{kind}", results.cpu[kind].ratio(OURS, name))
    _spread(flat, "cpu_us_ours", typical.figure(OURS))
    own = many.figure(OURS)
    _spread(
        flat,
        "env1500_ms",
        Figure(median=own.median / 1000, low=own.low / 1000, high=own.high / 1000),
    )
    if results.growth is not None:
        _spread(flat, "growth_10_to_10000", results.growth)
    flat["rss_mb_10000_namespaces"] = round(results.crowd_mb, 1)
    flat["rss_mb_10000_of_each"] = round(results.large_mb, 1)
    if results.survived is not None:
        survived = results.survived
        flat["failed_during_restarts"] = survived.failed
        flat["reviews_during_restarts"] = survived.sent
        flat["rolling_restarts"] = survived.restarts
        flat["certificate_changes"] = survived.changes
    for kind, rounds in results.cpu.items():
        for name in SERVERS:
            flat[f"cpu_us_{_key(kind)}_{name}"] = round(rounds.figure(name).median, 1)
    for (name, rate), measured in results.latencies.items():
        flat[f"p50_ms_{rate:.0f}_{name}"] = _middle(one.p50_ms for one in measured)
        flat[f"p99_ms_{rate:.0f}_{name}"] = _middle(one.p99_ms for one in measured)
        flat[f"p999_ms_{rate:.0f}_{name}"] = _middle(one.p999_ms for one in measured)
    for name, resident in results.resident_mb.items():
        flat[f"rss_mb_{name}"] = round(resident, 1)
    flat["rounds_discarded"] = sum(rounds.discarded for rounds in results.cpu.values())
    return flat


def _spread(flat: dict[str, float], key: str, figure: Figure) -> None:
    flat[key] = round(figure.median, 3)
    flat[f"{key}_low"] = round(figure.low, 3)
    flat[f"{key}_high"] = round(figure.high, 3)


def _middle(values: object) -> float:
    return round(Figure.of(values).median, 3)  # type: ignore[arg-type]


def _key(kind: str) -> str:
    return kind.replace(" ", "_")


def show(results: Results, asked: Mapping[str, ReviewInput], console: Console) -> None:
    """Print all tables."""
    console.print(_cpu_table(results, asked))
    console.print(_ratio_table(results))
    if results.latencies:
        console.print(_latency_table(results))
    console.print(_other_table(results))


def _cpu_table(results: Results, asked: Mapping[str, ReviewInput]) -> Table:
    table = Table(title="CPU for one review, µs: median (lowest to highest round)")
    table.add_column("review")
    for name in SERVERS:
        table.add_column(_TITLES[name], justify="right")
    for kind, rounds in results.cpu.items():
        size = f", {len(asked[kind].body) / 1000:.1f} kB" if kind in asked else ""
        meaning = f"\n[dim]{asked[kind].meaning}[/dim]" if kind in asked else ""
        row = [f"{kind}{size}{meaning}"]
        for name in SERVERS:
            figure = rounds.figure(name)
            row.append(f"{figure.median:.0f} ({figure.low:.0f} to {figure.high:.0f})")
        table.add_row(*row)
    return table


def _ratio_table(results: Results) -> Table:
    table = Table(title="CPU of ours divided by theirs, typical pods")
    for title in ("server", "reviews", "ratio", "spread", "wanted"):
        table.add_column(title)
    for kind, meaning in COMPARED.items():
        for name in THEIRS:
            ratio = results.cpu[kind].ratio(OURS, name)
            target = _TARGETS.get(name)
            wanted = "" if target is None else _met(ratio.median, target)
            spread = f"{ratio.low:.3f} to {ratio.high:.3f}"
            table.add_row(_TITLES[name], meaning, f"{ratio.median:.3f}", spread, wanted)
    return table


def _latency_table(results: Results) -> Table:
    table = Table(title="Latency from the planned start, ms: p50 / p99 / p99.9")
    table.add_column("server")
    rates = sorted({rate for _, rate in results.latencies})
    for rate in rates:
        table.add_column(f"{rate:.0f}/s", justify="right")
    for name in SERVERS:
        row = [_TITLES[name]]
        for rate in rates:
            measured = results.latencies[name, rate]
            failed = sum(one.failed for one in measured)
            text = " / ".join(
                f"{_middle(values):.2f}"
                for values in (
                    [one.p50_ms for one in measured],
                    [one.p99_ms for one in measured],
                    [one.p999_ms for one in measured],
                )
            )
            row.append(text + (f"\n{failed} without an answer" if failed else ""))
        table.add_row(*row)
    return table


def _other_table(results: Results) -> Table:
    table = Table(title="Ours")
    for title in ("what", "measured", "wanted"):
        table.add_column(title)
    many = results.cpu["env1500"].figure(OURS).median / 1000
    table.add_row("1,500 variables, CPU", f"{many:.2f} ms", _met(many, 2.5))
    if results.growth is not None:
        growth = results.growth
        table.add_row(
            "CPU at 10,000 namespaces, profiles and nodes, divided by CPU at 10",
            f"{growth.median:.3f} ({growth.low:.3f} to {growth.high:.3f})",
            "1 within the spread",
        )
        table.add_row(
            "resident memory, 10,000 namespaces",
            f"{results.crowd_mb:.0f} MB",
            _met(results.crowd_mb, _MOST_MB),
        )
        large_mb = results.large_mb
        table.add_row(
            "resident memory, 10,000 of each", f"{large_mb:.0f} MB", _met(large_mb, _MOST_MB)
        )
    for name, resident in results.resident_mb.items():
        table.add_row(f"resident memory, {_TITLES[name]}", f"{resident:.0f} MB", "")
    survived = results.survived
    if survived is not None:
        table.add_row(
            f"failed reviews in {survived.restarts} rolling restarts and {survived.changes} "
            f"certificate changes, two replicas",
            f"{survived.failed} of {survived.sent}, slowest {survived.worst_ms:.0f} ms; "
            f"{survived.certificates} certificates seen, {survived.unclean} unclean exits"
            + (f"; first: {survived.first_error}" if survived.first_error else ""),
            "0",
        )
    return table


def _met(found: float, target: float) -> str:
    return f"≤ {target:g}: {'yes' if found <= target else 'NO'}"
