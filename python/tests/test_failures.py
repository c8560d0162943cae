"""Promises of failures: what is lost is named, in time, on every rank; and a group that ends leaves nothing."""

import datetime
import os
import threading
import time
import unittest

import gpusock
import torch
import torch.distributed as dist

from processes import die, run

TIMEOUT_S = 10


def error_of(call):
    """The text of the error that a call raises, and how many seconds it took."""
    start = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return str(error), time.monotonic() - start
    raise AssertionError("no error")


def operate(name, size=100_000):
    """An operation of all ranks."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    tensor = torch.ones(size * ranks, dtype=torch.float64 if name.endswith("of doubles") else torch.float32)
    parts = list(tensor.chunk(ranks))
    {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "all_reduce of doubles": lambda: dist.all_reduce(tensor),
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "all_gather": lambda: dist.all_gather(parts, torch.ones(size)),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(torch.ones(size), tensor),
        "gather and scatter": lambda: (
            dist.gather(torch.ones(size), parts if rank == 0 else None, 0),
            dist.scatter(torch.ones(size), parts if rank == 0 else None, 0),
        ),
        "all_to_all": lambda: dist.all_to_all_single(torch.ones(size * ranks), tensor),
        "barrier": dist.barrier,
    }[name]()


OPERATIONS = (
    "all_reduce",
    "all_reduce of doubles",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "gather and scatter",
    "all_to_all",
    "barrier",
)


def lose(rank, name, operations):
    """Rank 1 kills itself among operations; the others go on until one fails."""
    for _ in range(operations):
        operate(name)
    if rank == 1:
        die()

    def rest():
        for _ in range(1000):
            operate(name)

    text, seconds = error_of(rest)
    later, _ = error_of(lambda: operate(name))
    return text, seconds, later


def lose_at_any_moment(rank, seed):
    """Rank 1 is killed by its own timer, wherever it is."""
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        threading.Timer(0.02 * seed, die).start()

    def rest():
        while True:
            for name in OPERATIONS:
                operate(name, 1000)

    return error_of(rest)


def lose_in_a_group(rank):
    group = dist.new_group([1, 2, 3], backend="gpusock")
    if rank == 0:
        return None
    dist.all_reduce(torch.ones(3), group=group)
    if rank == 2:
        die()
    return error_of(lambda: dist.all_reduce(torch.ones(3), group=group))[0]


def lose_a_sender(rank):
    if rank == 1:
        die()
    return error_of(lambda: dist.recv(torch.ones(3), 1))


def stay_away(rank):
    """Rank 1 takes no part in time."""
    if rank == 1:
        time.sleep(12)
        return None
    return error_of(lambda: dist.all_reduce(torch.ones(3)))


def wait_in_vain(rank):
    if rank == 1:
        time.sleep(5)
        return None
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    started = time.monotonic()
    work = group.recv([torch.ones(3)], 1, 5)
    text, _ = error_of(lambda: work.wait(datetime.timedelta(milliseconds=200)))
    assert not work.is_completed() and time.monotonic() - started < 1.5
    text, _ = error_of(work.wait)
    return text, time.monotonic() - started


def abort(rank):
    """Both ranks wait for what does not come; an abort from another thread ends that."""
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        text, seconds = error_of(lambda: dist.recv(torch.ones(3), 0))  # rank 0 ends its group
        return text, seconds
    receive = dist.irecv(torch.ones(3), 1, tag=9)
    reduction = dist.all_reduce(torch.ones(3), async_op=True)
    threading.Timer(0.3, group.abort).start()
    results = [error_of(work.wait) for work in (reduction, receive)]
    results.append(error_of(lambda: dist.all_reduce(torch.ones(3))))
    return results


def abort_one_receive(rank):
    if rank == 0:
        work = dist.irecv(torch.ones(3), 1, tag=9)
        threading.Timer(0.2, gpusock.abort, (work,)).start()
        text, _ = error_of(work.wait)
        assert "the receive was aborted" in text, text
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3,), 2.0)), tensor


def contradict(rank):
    return error_of(lambda: dist.all_reduce(torch.ones(4 if rank == 0 else 5)))[0]


def contradict_by_messages(rank):
    tensors = [torch.ones(3), torch.ones(3)]
    if rank == 0:
        return error_of(lambda: dist.gather(torch.ones(3), tensors, 0))[0]
    return error_of(lambda: dist.all_to_all(tensors, tensors))[0]


def holdings():
    """Threads, descriptors and shared memory of this process."""
    threads = len(os.listdir("/proc/self/task"))
    shared = sum(1 for name in os.listdir("/dev/shm") if name.startswith(f"gpusock-{os.getpid()}-"))
    with open("/proc/self/statm") as file:
        megabytes = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
    return threads, len(os.listdir("/proc/self/fd")), shared, megabytes


def make_and_destroy(rank, groups):
    counts = []
    for i in range(groups):
        group = dist.new_group(backend="gpusock")
        tensor = torch.ones(10)
        if i % 10 == 0:
            dist.all_reduce(tensor, group=group)
            dist.all_to_all_single(torch.ones(2), torch.ones(2), group=group)
            assert tensor[0] == 2
        dist.destroy_process_group(group)
        del group
        if i in (groups // 10, groups - 1):
            counts.append(holdings())
    return counts


def monitor(rank):
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=5))
    if rank == 1:
        time.sleep(2)
        return None
    return error_of(lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True))[0]


class Failures(unittest.TestCase):
    def check_lost(self, results, lost):
        for rank, result in enumerate(results):
            if result is None:
                continue
            text, seconds = result[:2]
            self.assertRegex(text, f"lost rank {lost}", f"rank {rank}")
            self.assertLess(seconds, TIMEOUT_S, f"rank {rank}")

    def test_a_killed_rank_is_named_by_all_in_each_operation(self):
        for name in OPERATIONS:
            for operations in (0, 3):
                with self.subTest(name=name, operations=operations):
                    # Before the first operation nobody is connected: then the others wait for the rank to come.
                    results = run(3, lose, name, operations, timeout_s=TIMEOUT_S if operations != 0 else 2, killed=(1,))
                    if operations != 0:
                        self.check_lost(results, 1)
                    for result in (results[0], results[2]):
                        self.assertRegex(result[0], "rank 1")
                        self.assertRegex(result[2], "has failed before")

    def test_a_rank_is_killed_at_any_moment(self):
        for seed in range(6):
            with self.subTest(seed=seed):
                results = run(4, lose_at_any_moment, seed, timeout_s=TIMEOUT_S, killed=(1,))
                for rank, result in enumerate(results):
                    if result is not None:
                        self.assertLess(result[1], TIMEOUT_S + 9, f"rank {rank}")
                        self.assertRegex(result[0], "rank 1", f"rank {rank}")

    def test_an_error_says_of_which_ranks_its_group_is(self):
        results = run(4, lose_in_a_group, timeout_s=TIMEOUT_S, killed=(2,))
        for rank in (1, 3):
            self.assertRegex(results[rank], r"rank 1.*of a group of the ranks 1 2 3")

    def test_a_killed_sender(self):
        self.check_lost(run(2, lose_a_sender, timeout_s=TIMEOUT_S, killed=(1,)), 1)

    def test_a_rank_that_takes_no_part(self):
        text, seconds = run(2, stay_away, timeout_s=2)[0]
        self.assertRegex(text, "rank 1")
        self.assertLess(seconds, 2 + 9)

    def test_a_message_that_does_not_come(self):
        text, seconds = run(2, wait_in_vain, timeout_s=2)[0]
        self.assertRegex(text, "Timed out after 2 s: rank 1 has not sent what a receive with tag 5 waits for")
        self.assertLess(seconds, 4)

    def test_abort_ends_waits(self):
        aborted, other = run(2, abort, timeout_s=TIMEOUT_S)
        for text, seconds in aborted:
            self.assertRegex(text, "aborted")
            self.assertLess(seconds, 3)
        self.assertRegex(other[0], "rank 0")
        self.assertLess(other[1], TIMEOUT_S)

    def test_abort_of_one_receive_leaves_the_group(self):
        run(2, abort_one_receive)

    def test_other_calls_on_other_ranks_are_an_error(self):
        for text in run(2, contradict, timeout_s=TIMEOUT_S):
            self.assertRegex(text, "does not follow the schedule|do not follow the same schedule")
        self.assertRegex(run(2, contradict_by_messages, timeout_s=3)[0], "another collective operation")

    def test_a_monitored_barrier_names_who_does_not_come(self):
        texts = run(3, monitor, timeout_s=TIMEOUT_S)
        self.assertRegex(texts[0], "Rank 1 failed to pass monitoredBarrier in 1000 ms")
        self.assertRegex(texts[2], "Rank 2 successfully reached monitoredBarrier, but received errors")

    def test_a_thousand_groups_leave_nothing(self):
        for early, late in run(2, make_and_destroy, 1000):
            self.assertEqual(early[:3], late[:3], "threads, descriptors, shared memory")
            self.assertLess(late[3], early[3] + 60, "MB")


if __name__ == "__main__":
    unittest.main()
