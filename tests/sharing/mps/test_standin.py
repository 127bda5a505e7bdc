"""The stand-in speaks the real program's control protocol."""

from __future__ import annotations

import pytest

from sharing.mps.standin import Books, RefusedError, obey

NO_FAULTS: frozenset[str] = frozenset()


def said(books: Books, *lines: str) -> list[str]:
    return [obey(books, line, NO_FAULTS) for line in lines]


def test_defaults_hold_for_servers_started_later_only() -> None:
    books = Books(multi_user=True)
    (first, _, second) = (
        books.start_server(0).pid,
        said(books, "set_default_active_thread_percentage 25"),
        books.start_server(1).pid,
    )
    assert said(books, f"get_active_thread_percentage {first}") == ["100.0"]
    assert said(books, f"get_active_thread_percentage {second}") == ["25.0"]


def test_memory_is_printed_in_whole_gib_where_there_is_one() -> None:
    books = Books(multi_user=True)
    said(books, "set_default_device_pinned_mem_limit 0 3840M")
    assert said(books, "get_default_device_pinned_mem_limit 0") == ["3G"]
    said(books, "set_default_device_pinned_mem_limit 0 512M")
    assert said(books, "get_default_device_pinned_mem_limit") == ["512M"]
    assert said(books, "get_default_device_pinned_mem_limit 1") == [""]


def test_without_multi_user_another_users_client_waits_for_the_server_to_be_idle() -> None:
    books = Books(multi_user=False)
    (first,) = said(books, "standin_attach 11 1000")
    assert said(books, "standin_attach 12 2000") == ["queued"]
    assert said(books, f"get_client_list {first}") == ["11"]
    said(books, "standin_detach 11")
    (second,) = said(books, "standin_attach 12 2000")
    assert second not in {first, "queued"}
    assert said(books, "get_server_list") == [second]


@pytest.mark.parametrize(
    "line",
    [
        "make_coffee",
        "set_default_active_thread_percentage",
        "set_default_active_thread_percentage 0",
        "set_default_active_thread_percentage 101",
        "set_default_active_thread_percentage many",
        "set_default_device_pinned_mem_limit 0 3840",
        "set_default_device_pinned_mem_limit GPU-a 1G",
        "get_client_list 99",
        "start_server -u 0",
    ],
)
def test_a_wrong_command_is_refused(line: str) -> None:
    with pytest.raises(RefusedError):
        obey(Books(multi_user=True), line, NO_FAULTS)


def test_a_server_can_be_started_by_hand() -> None:
    books = Books(multi_user=True)
    said(books, "start_server -uid 1000")
    assert said(books, "get_server_list") == [str(pid) for pid in books.servers]
