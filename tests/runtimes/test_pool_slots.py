"""Who comes first where several wait for their turn."""

from __future__ import annotations

import threading
import time

from onnxgate.runtimes.pool import Priority, WorkerSlots


def test_the_most_awaited_goes_first() -> None:
    """However long the others have waited."""
    slots, order, threads = WorkerSlots(1), list[Priority](), list[threading.Thread]()

    def work(rank: Priority) -> None:
        with slots.occupy(rank):
            order.append(rank)

    with slots.occupy():
        for rank in (Priority.AHEAD, Priority.USUAL, Priority.AWAITED):
            threads.append(threading.Thread(target=work, args=(rank,)))
            threads[-1].start()
            while not slots._waiting[rank]:
                time.sleep(0.001)
    for thread in threads:
        thread.join(10)

    assert order == [Priority.AWAITED, Priority.USUAL, Priority.AHEAD]


def test_no_more_than_there_are() -> None:
    """Nobody gets in while all are taken, and a fault gives its own back."""
    slots, inside, most = WorkerSlots(2), list[int](), list[int]()

    def work(number: int) -> None:
        try:
            with slots.occupy():
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.005)
                inside.remove(number)
                raise ValueError
        except ValueError:
            pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(most) == 12
    assert max(most) == 2
