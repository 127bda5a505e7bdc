"""``python -m benchmarks.certificates``: does anybody notice when certificates change?

Real etcd and API server, replicas of the webhook as processes with the chart's service account
behind a real Service, and pods created as a dry run all the while. Certificates rotate, replicas
are replaced, clocks jump, API server and etcd restart, the Secret is deleted, bundles are emptied.
Full: some twenty minutes on two cores. ``--quick``: a tenth of it, three minutes.

Printed are, among others: ``rotations``, ``restarts`` (of replicas), ``reviews``,
``failed_reviews``, ``reviews_per_s``, ``max_authorities``, and ``untrusted_handshakes`` of an
observer that asks every replica for its certificate all the time.

Needs the programs of ``make cluster-programs`` and a C compiler, for a clock that jumps.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.certificates.campaign import FULL, QUICK, Campaign, Size
from benchmarks.certificates.figures import figures
from benchmarks.certificates.scene import API_FLAGS, Scene
from benchmarks.certificates.wallclock import compiler
from tests.cluster import leftovers, needs
from tests.cluster.controlplane import ControlPlane


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the size.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the figures here too.")  # fmt: skip
def main(*, quick: bool, file: Path | None) -> None:
    """Rotate, restart and break, and count the reviews that failed."""
    lacks = needs.missing(needs.Tier.CONTROL_PLANE)
    if not compiler():
        lacks.append("a C compiler")
    if lacks:
        raise click.ClickException(f"missing: {'; '.join(lacks)}")
    leftovers.sweep()
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, api_flags=API_FLAGS) as plane:
            found = asyncio.run(_run(plane, folder, QUICK if quick else FULL))
    finally:
        shutil.rmtree(folder)
    text = json.dumps(found, indent=2)
    if file is not None:
        file.write_text(f"{text}\n")
    print(text)


async def _run(plane: ControlPlane, folder: Path, size: Size) -> dict[str, Any]:
    home = folder / "scene"
    home.mkdir()
    async with Scene(plane=plane, folder=home) as scene:
        campaign = Campaign(scene=scene, folder=home, size=size, say=_say)
        await campaign.run()
        return figures(
            campaign.phases,
            scene.ends,
            rotations=campaign.rotations,
            kills=len(campaign.kills),
            max_authorities=scene.observer.most_authorities,
            handshakes_observed=scene.observer.handshakes,
            untrusted_handshakes=len(scene.observer.violations),
            violations=scene.observer.violations[:10],
            load_average=round(os.getloadavg()[0], 1),
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
