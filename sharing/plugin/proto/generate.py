"""Make the protocol stubs from the ``.proto`` files beside this module.

``python -m sharing.plugin.proto.generate`` rewrites them in place, ``--into DIR`` writes
them elsewhere (a test compares both, so that stubs and sources never drift apart).
Needs the development dependencies grpcio-tools and mypy-protobuf.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[2]
PROTOCOLS: Final = ("deviceplugin", "podresources")
SUFFIXES: Final = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def generate(into: Path) -> None:
    """Write the stubs of all protocols below ``into``, in the package's own folders.

    The sources are named relative to the repository's root, which makes the imports
    inside the generated modules absolute imports of this package.

    Raises:
        subprocess.CalledProcessError: If the protocol compiler refuses a source; its own
            words are on standard error.
    """
    sources = [str((FOLDER / f"{protocol}.proto").relative_to(ROOT)) for protocol in PROTOCOLS]
    # The plugins that write type stubs are programs beside the interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    subprocess.run(  # noqa: S603 - our interpreter and our own files
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={ROOT}",
            f"--python_out={into}",
            f"--grpc_python_out={into}",
            f"--mypy_out=quiet:{into}",
            f"--mypy_grpc_out=quiet:{into}",
            *sources,
        ],
        check=True,
        env={**os.environ, "PATH": path},
        cwd=ROOT,
    )


def main() -> None:
    """Regenerate in place, or below the folder named by ``--into``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT, help="root of the generated packages")
    generate(parser.parse_args().into)


if __name__ == "__main__":
    main()
