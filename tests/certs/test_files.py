"""Certificates from files that somebody else renews."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from certs.context import HotContext
from certs.errors import Fault
from certs.files import FileKeeper, PairFiles, write_files
from sharing.errors import InputError


def now() -> datetime:
    return datetime.now(UTC)


class Folder:
    """A folder as a kubelet mounts a Secret: files are links through a link to a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = trustme.CA()
        self.number = 0
        for name in ("tls.crt", "tls.key"):
            (path / name).symlink_to(Path("..data") / name)
        self.renew()

    @property
    def files(self) -> PairFiles:
        return PairFiles(certificate=self.path / "tls.crt", key=self.path / "tls.key")

    def renew(self, *, key: bytes | None = None, names: tuple[str, ...] = ("a.test",)) -> None:
        issued = self.authority.issue_cert(*names)
        self.put(
            b"".join(blob.bytes() for blob in issued.cert_chain_pems),
            issued.private_key_pem.bytes() if key is None else key,
        )

    def put(self, certificate: bytes, key: bytes) -> None:
        self.number += 1
        version = self.path / f"..{self.number}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        link = self.path / "..new"
        link.symlink_to(version.name)
        link.replace(self.path / "..data")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_renewed_pair_is_taken_once(folder: Folder) -> None:
    hot = HotContext(now)
    keeper = FileKeeper(folder.files, hot)
    keeper.start()
    first = hot.leaf

    assert keeper.look() is False
    folder.renew()
    assert keeper.look() is True
    assert keeper.look() is False
    assert hot.leaf != first


def test_a_pair_that_is_half_written_is_waited_for_and_told_once(folder: Folder) -> None:
    hot = HotContext(now)
    faults: list[Fault] = []
    keeper = FileKeeper(folder.files, hot, on_failure=faults.append)
    keeper.start()
    good = hot.leaf
    other = folder.authority.issue_cert("a.test").private_key_pem.bytes()

    folder.renew(key=other)
    with capture_logs() as logs:
        assert keeper.look() is False
        assert keeper.look() is False

    assert hot.leaf == good
    assert faults == [Fault.MISMATCH]
    assert [line["event"] for line in logs] == ["certificate was not taken into service"]
    folder.renew()
    assert keeper.look() is True


@pytest.mark.parametrize("content", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\n"])
def test_garbage_in_the_files_keeps_the_good_certificate(folder: Folder, content: bytes) -> None:
    hot = HotContext(now)
    keeper = FileKeeper(folder.files, hot)
    keeper.start()
    good = hot.leaf

    folder.put(content, content)

    assert keeper.look() is False
    assert hot.leaf == good


def test_files_that_are_gone_keep_the_good_certificate(folder: Folder) -> None:
    hot = HotContext(now)
    faults: list[Fault] = []
    keeper = FileKeeper(folder.files, hot, on_failure=faults.append)
    keeper.start()
    (folder.path / "..data").unlink()

    assert keeper.look() is False
    assert hot.leaf is not None
    assert faults == [Fault.UNREADABLE]


def test_a_certificate_for_another_name_is_not_taken(folder: Folder) -> None:
    hot = HotContext(now)
    faults: list[Fault] = []
    keeper = FileKeeper(folder.files, hot, names=("a.test",), on_failure=faults.append)
    keeper.start()
    folder.renew(names=("b.test",))

    assert keeper.look() is False
    assert faults == [Fault.WRONG_NAME]


def test_a_certificate_that_is_not_valid_yet_is_taken_when_it_is(folder: Folder) -> None:
    offset = [timedelta()]
    hot = HotContext(lambda: now() + offset[0])
    keeper = FileKeeper(folder.files, hot)
    keeper.start()
    folder.renew()
    offset[0] = timedelta(days=-365 * 30)
    assert keeper.look() is False

    offset[0] = timedelta()

    assert keeper.look() is True


def test_start_refuses_files_that_cannot_be_served(folder: Folder, tmp_path: Path) -> None:
    missing = PairFiles(certificate=tmp_path / "nope.crt", key=folder.files.key)

    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        FileKeeper(missing, HotContext(now)).start()


def test_a_file_without_end_is_not_read_to_its_end(folder: Folder) -> None:
    endless = PairFiles(certificate=Path("/dev/zero"), key=folder.files.key)

    with pytest.raises(InputError, match="larger than 1 MiB"):
        endless.read()


async def test_a_running_keeper_takes_what_comes(folder: Folder) -> None:
    hot = HotContext(now)
    keeper = FileKeeper(folder.files, hot)
    keeper.start()
    first = hot.leaf
    task = asyncio.create_task(keeper.run(poll_s=0.01))
    folder.renew()

    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0.01)
            if hot.leaf != first:
                break

    task.cancel()


def test_written_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    write_files(tmp_path / "new", {"a.crt": b"a", "a.key": b"b"})

    assert (tmp_path / "new/a.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new/a.crt").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.crt", "a.key"]


def test_written_files_replace_nothing_unasked(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.crt": b"old"})

    with pytest.raises(InputError, match=r"holds a\.crt already"):
        write_files(tmp_path, {"a.crt": b"new", "b.crt": b"new"})
    assert not (tmp_path / "b.crt").exists()

    write_files(tmp_path, {"a.crt": b"new"}, replace=True)
    assert (tmp_path / "a.crt").read_bytes() == b"new"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot be written to"):
        write_files(tmp_path / "file" / "below", {"a.crt": b""})
