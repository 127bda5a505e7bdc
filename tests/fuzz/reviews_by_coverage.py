"""Coverage-guided fuzzing of the server's way of one call, bytes in, answer out, by Atheris.

    pip install atheris && python -m tests.fuzz.reviews_by_coverage -max_total_time=600 CORPUS

Atheris is no dependency of the project: install it where the campaign runs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

_KEYS: tuple[dict[str, str], ...] = (
    {},
    {"gpu.sharing/fraction": "1/4"},
    {"gpu.sharing/memory": "10Gi", "gpu.sharing/mode": "mps"},
    {"train.gpu.sharing/mig-profile": "1g.10gb"},
    {"status.gpu.sharing/grants": "[]", "gpu-fraction": "0.5"},
)


def seed(folder: Path) -> None:
    """Give a corpus some reviews to start from."""
    orjson, admission = import_module("orjson"), import_module("tests.support.admission")
    namespaces = import_module("tests.fuzz.world").NAMESPACES
    folder.mkdir(parents=True, exist_ok=True)
    for number, keys in enumerate(_KEYS):
        for namespace in namespaces:
            body = orjson.dumps(admission.review(admission.pod(keys), namespace=namespace))
            (folder / f"seed-{number}-{namespace}").write_bytes(bytes([number]) + body)


def main() -> None:
    """Run until a promise is broken, or as long as libFuzzer's options say."""
    atheris = import_module("atheris")
    with atheris.instrument_imports(include=["webhook", "sharing"]):
        world = import_module("tests.fuzz.world")

    def one_input(data: bytes) -> None:
        """The first byte chooses what the server knows; the rest is the body."""
        if data:
            world.check(data[1:], world.SNAPSHOTS[data[0] % len(world.SNAPSHOTS)])

    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            seed(Path(argument))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
