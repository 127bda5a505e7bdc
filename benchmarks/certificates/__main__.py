"""``python -m benchmarks.certificates``: does anybody notice when certificates change?

Real etcd and API server, replicas of the webhook as processes with the chart's service account
behind a real Service, and pods created all the while as a dry run: admission is whole, nothing is
stored. Certificates rotate, replicas are replaced, clocks jump, API server and etcd restart, the
Secret is deleted, bundles are emptied, and then replicas are killed at each step of a rotation.
Full: a quarter of an hour on two cores that do nothing else. ``--quick``: less than a minute.

Printed are, among others: ``result``, which names what was not shown and is ``passed`` otherwise;
``rotations``, ``restarts`` (of replicas), ``reviews``, ``failed_reviews``, ``reviews_per_s``,
``max_authorities``, and ``untrusted_handshakes`` of an observer that asks every replica for its
certificate all the time. The exit status is 1 if something was not shown; with ``--only`` nothing
is judged.

Needs the programs of ``make cluster-programs`` and a C compiler, for a clock that jumps.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.certificates.campaign import FULL, QUICK, Campaign, Size
from benchmarks.certificates.cpu import per_review_ms
from benchmarks.certificates.figures import EMPTIED, figures
from benchmarks.certificates.scene import API_FLAGS, Scene
from benchmarks.certificates.verdict import explained, faults
from benchmarks.certificates.wallclock import compiler
from tests.cluster import leftovers, needs
from tests.cluster.controlplane import ControlPlane

PASSED: Final = "passed"


@click.command()
@click.option("--quick", is_flag=True, help="A small part of it.")
@click.option("--rate", type=click.FloatRange(1, 2000), help="Reviews a second.")
@click.option("--only", multiple=True, metavar="PHASE", help="By its name; may be repeated.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the figures here too, after each phase.")  # fmt: skip
def main(*, quick: bool, rate: float | None, only: tuple[str, ...], file: Path | None) -> None:
    """Rotate, restart and break, and count the reviews that failed."""
    lacks = needs.missing(needs.Tier.CONTROL_PLANE)
    if not compiler():
        lacks.append("a C compiler")
    if lacks:
        raise click.ClickException(f"missing: {'; '.join(lacks)}")
    size = QUICK if quick else FULL
    size = replace(size, rate=rate or size.rate)
    leftovers.sweep()
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, api_flags=API_FLAGS) as plane:
            found = asyncio.run(_run(plane, folder, size, only=only, file=file))
    finally:
        shutil.rmtree(folder)
    print(_text(found))
    if not only and found["result"] != PASSED:
        sys.exit(1)


async def _run(
    plane: ControlPlane, folder: Path, size: Size, *, only: tuple[str, ...], file: Path | None
) -> dict[str, Any]:
    home = folder / "scene"
    home.mkdir()
    async with Scene(plane=plane, folder=home) as scene:

        def tell() -> None:
            if file is not None:
                file.write_text(f"{_text(_found(campaign))}\n")

        campaign = Campaign(scene=scene, folder=home, size=size, say=_say, done=tell)
        await campaign.run(only)
        tell()
        return _found(campaign)


def _found(campaign: Campaign) -> dict[str, Any]:
    observer = campaign.scene.observer
    failed = [
        moment
        for phase in campaign.phases
        if phase.name != EMPTIED
        for moment in phase.seen.moments
    ]
    found = figures(
        campaign.phases,
        campaign.scene.ends,
        rotations=campaign.rotations,
        kills=len(campaign.kills),
        max_authorities=observer.most_authorities,
        handshakes_observed=observer.handshakes,
        untrusted_handshakes=len(observer.violations),
        violations=observer.violations[:10],
        requests="create pods as a dry run",
        cpu_ms_per_review=per_review_ms(campaign.phases),
        api_server_lag_longest_s=round(observer.longest_lag_s, 2),
        failed=explained(failed, observer.changes),
        load_average=round(os.getloadavg()[0], 1),
    )
    wrong = faults(found, campaign.size)
    return {"result": f"not shown: {'; '.join(wrong)}" if wrong else PASSED, **found}


def _text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
