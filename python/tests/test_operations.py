"""Promises of each operation: its result, for all types, reductions, sizes and numbers of ranks."""

import functools
import operator
import threading
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from processes import Failure, run

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
COMPLEX = (torch.complex64, torch.complex128)
TYPES = FLOATS + INTEGERS + (torch.bool,)
# Of nothing, of one, odd, above what a reduction without a schedule gathers whole, above what "butterfly" sums.
SIZES = (0, 1, 7, 1001, 70_003)
RANKS = (1, 2, 3, 4)


def tensor_of(rank, dtype, size, scale=3):
    """Small whole numbers, so that sums are exact in any order."""
    numbers = torch.randint(0, scale, (size,), generator=torch.Generator().manual_seed(rank * 1000 + size))
    return numbers.to(dtype)


def tensors_of(ranks, dtype, size, scale=3):
    return [tensor_of(rank, dtype, size, scale) for rank in range(ranks)]


def reduced(tensors, op):
    """What a reduction is to give."""
    steps = {
        ReduceOp.SUM: operator.add,
        ReduceOp.AVG: operator.add,
        ReduceOp.PRODUCT: operator.mul,
        ReduceOp.MIN: torch.minimum,
        ReduceOp.MAX: torch.maximum,
        ReduceOp.BAND: operator.and_,
        ReduceOp.BOR: operator.or_,
        ReduceOp.BXOR: operator.xor,
    }
    total = functools.reduce(steps[op], tensors)
    return total / len(tensors) if op == ReduceOp.AVG else total


def operations_of(dtype):
    if dtype.is_complex:
        return [ReduceOp.SUM, ReduceOp.AVG]
    operations = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    return operations + ([ReduceOp.AVG] if dtype.is_floating_point else [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR])


def check(got, expected, *what):
    if ReduceOp.AVG in what:  # a third is rounded
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        same = torch.allclose(got.to(wide), expected.to(wide), rtol=2e-2 if got.element_size() == 2 else 1e-6)
    else:
        same = torch.equal(got, expected)
    if got.dtype != expected.dtype or not same:
        raise AssertionError(f"{what}: got {got}, expected {expected}")


def apart(tensor):
    """The same elements, not next to each other in memory."""
    wide = torch.zeros(tensor.numel(), 2, dtype=tensor.dtype)
    wide[:, 0] = tensor.reshape(-1)
    return wide[:, 0]


def shifted(tensor):
    """The same elements, at an address that is no multiple of four if they are small."""
    longer = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    longer[1:] = tensor
    return longer[1:]


def all_reduces(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for op in operations_of(dtype):
            for size in SIZES:
                tensors = tensors_of(ranks, dtype, size)
                expected = reduced(tensors, op)
                for lay in (torch.clone, apart, shifted):
                    mine = lay(tensors[rank])
                    dist.all_reduce(mine, op)
                    check(mine, expected, "all_reduce", dtype, op, size, lay)
    for dtype in (torch.float32, torch.float64, torch.int32):
        mine = tensor_of(rank, dtype, 9)
        dist.all_reduce(mine, dist._make_nccl_premul_sum(2.0))
        check(mine, 2 * reduced(tensors_of(ranks, dtype, 9), ReduceOp.SUM), "premultiplied", dtype)


def reduces(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for op in operations_of(dtype):
            for root in {0, ranks - 1}:
                tensors = tensors_of(ranks, dtype, 1001)
                mine = tensors[rank].clone()
                dist.reduce(mine, root, op)
                check(mine, reduced(tensors, op) if rank == root else tensors[rank], "reduce", dtype, op, root)


def coalesced(rank):
    ranks = dist.get_world_size()
    warnings.simplefilter("ignore", FutureWarning)  # PyTorch means to rename it
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        lists = [[tensor_of(r + 10 * i, dtype, size) for i, size in enumerate((3, 0, 5))] for r in range(ranks)]
        mine = [tensor.clone() for tensor in lists[rank]]
        dist.all_reduce_coalesced(mine)
        for i, tensor in enumerate(mine):
            check(tensor, reduced([of[i] for of in lists], ReduceOp.SUM), "all_reduce_coalesced", dtype, i)
        outputs = [torch.zeros(ranks * size, dtype=dtype) for size in (3, 0, 5)]
        with dist._coalescing_manager():
            for output, tensor in zip(outputs, lists[rank]):
                dist.all_gather_into_tensor(output, tensor)
        for i, output in enumerate(outputs):
            check(output, torch.cat([of[i] for of in lists]), "all_gather_into_tensor, coalesced", dtype, i)
        parts = [torch.zeros(size, dtype=dtype) for size in (3, 0, 5)]
        with dist._coalescing_manager():
            for i, part in enumerate(parts):
                dist.reduce_scatter_tensor(part, torch.cat([of[i] for of in lists]))
        for i, part in enumerate(parts):
            check(part, ranks * lists[rank][i], "reduce_scatter_tensor, coalesced", dtype, i)


def broadcasts(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for size in SIZES:
            for lay in (torch.clone, apart, shifted):
                for root in {0, ranks - 1}:
                    mine = lay(tensor_of(rank, dtype, size))
                    dist.broadcast(mine, root)
                    check(mine, tensor_of(root, dtype, size), "broadcast", dtype, size, root)


def all_gathers(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for size in SIZES:
            tensors = tensors_of(ranks, dtype, size)
            for lay in (torch.clone, apart, shifted):
                outputs = [lay(torch.zeros(size, dtype=dtype)) for _ in range(ranks)]
                dist.all_gather(outputs, lay(tensors[rank]))
                for r in range(ranks):
                    check(outputs[r], tensors[r], "all_gather", dtype, size, r)
                whole = lay(torch.zeros(size * ranks, dtype=dtype))
                dist.all_gather_into_tensor(whole, lay(tensors[rank]))
                check(whole, torch.cat(tensors), "all_gather_into_tensor", dtype, size)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(ranks)], objects


def reduce_scatters(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for op in operations_of(dtype):
            for size in SIZES:
                wholes = tensors_of(ranks, dtype, size * ranks)
                expected = reduced(wholes, op)[rank * size : (rank + 1) * size]
                for lay in (torch.clone, apart, shifted):
                    given = wholes[rank].clone()
                    part = lay(torch.zeros(size, dtype=dtype))
                    dist.reduce_scatter(part, [lay(one) for one in given.reshape(ranks, size).unbind()], op)
                    check(part, expected, "reduce_scatter", dtype, op, size)
                    part = lay(torch.zeros(size, dtype=dtype))
                    source = lay(given)
                    dist.reduce_scatter_tensor(part, source, op)
                    check(part, expected, "reduce_scatter_tensor", dtype, op, size)
                    check(source, wholes[rank], "the input of reduce_scatter_tensor")


def gathers_and_scatters(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for size in SIZES:
            tensors = tensors_of(ranks, dtype, size)
            for root in {0, ranks - 1}:
                for lay in (torch.clone, apart):
                    outputs = [lay(torch.zeros(size, dtype=dtype)) for _ in range(ranks)] if rank == root else None
                    dist.gather(lay(tensors[rank]), outputs, root)
                    if rank == root:
                        for r in range(ranks):
                            check(outputs[r], tensors[r], "gather", dtype, size, root, r)
                    mine = lay(torch.zeros(size, dtype=dtype))
                    dist.scatter(mine, [lay(tensor) for tensor in tensors] if rank == root else None, root)
                    check(mine, tensors[rank], "scatter", dtype, size, root)


def all_to_alls(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for size in SIZES:
            sent = [[tensor_of(ranks * r + to, dtype, size) for to in range(ranks)] for r in range(ranks)]
            outputs = [torch.zeros(size, dtype=dtype) for _ in range(ranks)]
            dist.all_to_all(outputs, [apart(tensor) for tensor in sent[rank]])
            whole = torch.zeros(size * ranks, dtype=dtype)
            dist.all_to_all_single(whole, torch.cat(sent[rank]))
            for r in range(ranks):
                check(outputs[r], sent[r][rank], "all_to_all", dtype, size, r)
            check(whole, torch.cat([of[rank] for of in sent]), "all_to_all_single", dtype, size)
        # Rank r sends r + to rows of three elements to each rank.
        rows = [[torch.full((r + to, 3), 10 * r + to).to(dtype) for to in range(ranks)] for r in range(ranks)]
        whole = torch.zeros(sum(r + rank for r in range(ranks)), 3, dtype=dtype)
        dist.all_to_all_single(
            whole, torch.cat(rows[rank]), [r + rank for r in range(ranks)], [rank + to for to in range(ranks)]
        )
        check(whole, torch.cat([of[rank] for of in rows]), "all_to_all_single with sizes", dtype)


def messages(rank):
    ranks = dist.get_world_size()
    for dtype in TYPES + COMPLEX:
        for size in SIZES:
            for lay in (torch.clone, apart, shifted):
                # Every rank sends before it receives.
                works = [
                    dist.isend(lay(tensor_of(rank, dtype, size)), to, tag=rank) for to in range(ranks) if to != rank
                ]
                for source in range(ranks):
                    if source == rank:
                        continue
                    mine = lay(torch.zeros(size, dtype=dtype))
                    dist.recv(mine, source, tag=source)
                    check(mine, tensor_of(source, dtype, size), "recv", dtype, size, source)
                for work in works:
                    work.wait()
    if ranks == 1:
        return
    # Receive calls in another order than the sends: tags tell them apart. A message of 8 MB does not fit into a ring.
    if rank == 0:
        for tag, size in ((1, 2_000_000), (2, 5), (3, 0)):
            dist.send(torch.full((size,), tag), 1, tag=tag)
    if rank == 1:
        for tag, size in ((3, 0), (2, 5), (1, 2_000_000)):
            mine = torch.zeros(size, dtype=torch.int64)
            dist.recv(mine, 0, tag=tag)
            check(mine, torch.full((size,), tag), "tags", tag)
    # More than a rank keeps of messages that no call has asked for: the last one is received first.
    tags = range(100, 180)
    if rank == 0:
        for work in [dist.isend(torch.full((1 << 18,), float(tag)), 1, tag=tag) for tag in tags]:
            work.wait()
    if rank == 1:
        for tag in reversed(tags):
            mine = torch.zeros(1 << 18)
            dist.recv(mine, 0, tag=tag)
            check(mine, torch.full((1 << 18,), float(tag)), "80 MB of messages", tag)
    # From any rank: rank 0 hears each of the others once.
    if rank == 0:
        heard = set()
        for _ in range(ranks - 1):
            mine = torch.zeros(3)
            source = dist.recv(mine)
            check(mine, torch.full((3,), float(source)), "from any rank")
            heard.add(source)
        assert heard == set(range(1, ranks)), heard
    else:
        dist.send(torch.full((3,), float(rank)), 0)
    # A receive call that waits beside collective operations.
    mine = torch.zeros(1)
    pending = dist.irecv(mine, (rank + 1) % ranks, tag=77)
    for _ in range(3):
        dist.all_reduce(torch.ones(100))
    assert not pending.is_completed()
    dist.barrier()
    dist.send(torch.ones(1), (rank - 1) % ranks, tag=77)
    pending.wait()
    check(mine, torch.ones(1), "beside collective operations")


def asynchronous(rank):
    ranks = dist.get_world_size()
    tensors = [torch.full((1 + 5000 * i,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    doubled = works[-1].get_future().then(lambda future: future.value()[0] * 2)
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    for i, tensor in enumerate(tensors):
        check(tensor, torch.full_like(tensor, sum(r + i for r in range(ranks))), "asynchronous", i)
    check(doubled.wait(), 2 * tensors[-1], "a future")
    group = dist.group.WORLD
    before = group._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    dist.barrier()
    assert group._get_backend(torch.device("cpu"))._get_sequence_number_for_group() == before + 1


def sparse(rank):
    """Each rank has elements at other places, and one at the same place as all."""
    ranks = dist.get_world_size()

    def tensor_at(r):
        indices = torch.tensor([[0] + [1 + r] * r, [0] * (1 + r)])
        values = torch.full((1 + r, 2), 1.0 + r, dtype=torch.float64)
        return torch.sparse_coo_tensor(indices, values, (6, 3, 2), check_invariants=True)

    mine = tensor_at(rank)
    dist.all_reduce(mine)
    check(mine.to_dense(), sum(tensor_at(r).to_dense() for r in range(ranks)), "all_reduce of sparse tensors")


def callbacks(rank):
    """Chains of operations, each begun by the callback of the one before, beside others that are queued meanwhile."""
    ranks = dist.get_world_size()

    def further(size):
        def begin(future):
            future.value()
            tensor = torch.full((size,), rank + 1.0)
            return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

        return begin

    for turn in range(40):
        futures = []
        for size in (20_003, 5, 1001, 3):  # ranks whose operations differ in order would differ in sizes
            future = dist.all_reduce(torch.ones(size), async_op=True).get_future()
            futures.append(future.then(further(size + 1)).then(further(size + 2)))
            if turn % ranks == rank:  # this rank is late
                torch.ones(200, 200) @ torch.ones(200, 200)
        for future, size in zip(futures, (20_003, 5, 1001, 3)):
            check(future.wait(), torch.full((size + 2,), ranks * (ranks + 1) / 2), "callbacks", size)


def waited_for(rank):
    """Operations that their caller performs come after those that were started before, and before later ones."""
    ranks = dist.get_world_size()
    for size in (1, 3000):
        tensor = torch.ones(size)
        for turn in range(30):
            works = [dist.all_reduce(tensor, async_op=True), dist.broadcast(tensor, turn % ranks, async_op=True)]
            dist.all_reduce(tensor, ReduceOp.MAX)
            check(tensor, torch.full((size,), float(ranks)), "waited for", turn)
            assert all(work.is_completed() for work in works)
            tensor /= ranks


def callers(rank):
    """Several threads wait for their operations at the same time."""
    ranks = dist.get_world_size()
    tensors = [torch.ones(5) for _ in range(4)]

    def sum_often(tensor):
        for _ in range(50):
            dist.all_reduce(tensor, ReduceOp.AVG)  # equal tensors: it does not matter whose sum meets whose

    threads = [threading.Thread(target=sum_often, args=(tensor,)) for tensor in tensors]
    for thread in threads:
        thread.start()
    beside = [torch.ones(5) for _ in range(50)]
    works = [dist.all_reduce(tensor, ReduceOp.AVG, async_op=True) for tensor in beside]
    for thread in threads:
        thread.join()
    for work in works:
        work.wait()
    for tensor in tensors + beside:
        check(tensor, torch.ones(5), "threads of", ranks)


def several_of_a_rank(rank):
    """Forms of calls that take several tensors of a rank, as of several devices."""
    ranks = dist.get_world_size()
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    for dtype in (torch.float32, torch.int64):
        values = [[tensor_of(2 * r + i, dtype, 1001) for i in range(2)] for r in range(ranks)]
        every = [tensor for pair in values for tensor in pair]
        for op in (ReduceOp.SUM, ReduceOp.MAX):
            options = dist.AllreduceOptions()
            options.reduceOp = op
            mine = [apart(tensor) for tensor in values[rank]]
            group.allreduce(mine, options).wait()
            for tensor in mine:
                check(tensor, reduced(every, op), "all_reduce of several", op)
        for root in range(ranks):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 1
            mine = [tensor.clone() for tensor in values[rank]]
            group.broadcast(mine, options).wait()
            for tensor in mine:
                check(tensor, values[root][1], "broadcast of several", root)
        lists = [[torch.empty_like(tensor) for tensor in every] for _ in range(2)]
        group.allgather(lists, values[rank]).wait()
        for tensors in lists:
            for got, expected in zip(tensors, every):
                check(got, expected, "all_gather of several")
    mine = [torch.sparse_coo_tensor([[rank + i]], [1.0], (ranks + 1,), check_invariants=True) for i in range(2)]
    group.allreduce(mine).wait()
    expected = torch.tensor([1.0] + [2.0] * (ranks - 1) + [1.0])
    for tensor in mine:
        check(tensor.to_dense(), expected, "sparse all_reduce of several")


def refusals(rank):
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    average = dist.AllreduceOptions()
    average.reduceOp = ReduceOp.AVG
    for wanted, call in (
        ("cannot use ReduceOp.BAND", lambda: dist.all_reduce(torch.ones(3), ReduceOp.BAND)),
        ("cannot use ReduceOp.AVG", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), ReduceOp.AVG)),
        ("on the CPU only", lambda: group.allreduce([torch.ones(3, device="meta")])),
        ("dense tensors", lambda: group.broadcast([torch.ones(3).to_sparse()], dist.BroadcastOptions())),
        ("expected", lambda: group.allgather([[torch.ones(4)] * 2], [torch.ones(3)])),
        ("not 2 times the", lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(5))),
        ("split sizes", lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [2, 2])),
        ("invalid tensor size", lambda: group.allreduce([torch.ones(3), torch.ones(4)])),
        ("invalid tensor type", lambda: group.allreduce([torch.ones(3), torch.ones(3, dtype=torch.int32)])),
        ("invalid tensor layout", lambda: group.allreduce([torch.ones(3), torch.ones(3).to_sparse()])),
        ("takes one tensor of each rank", lambda: group.allreduce([torch.ones(3)] * 2, average)),
        ("non-empty tensor list", lambda: group.allreduce([])),
        ("invalid root tensor", lambda: group.broadcast([], dist.BroadcastOptions())),
        ("output tensor list", lambda: group.allgather([[torch.ones(3)] * 3], [torch.ones(3)])),
        ("single-element tensor list", lambda: group.send([torch.ones(3)] * 2, 1 - rank, 0)),
    ):
        try:
            call()
        except (RuntimeError, ValueError, TypeError) as error:
            assert wanted in str(error), (wanted, error)
        else:
            raise AssertionError(f"not refused: {wanted}")
    mine = torch.ones(2)
    dist.all_reduce(mine)  # the group goes on
    check(mine, torch.full((2,), 2.0), "after refusals")


class Operations(unittest.TestCase):
    def check_all(self, body):
        for ranks in RANKS:
            with self.subTest(ranks=ranks):
                run(ranks, body)

    def test_all_reduce_of_each_type_by_each_operation(self):
        self.check_all(all_reduces)

    def test_all_reduce_of_sparse_tensors(self):
        self.check_all(sparse)

    def test_reduce_leaves_the_other_ranks_tensors(self):
        self.check_all(reduces)

    def test_several_tensors_at_once(self):
        self.check_all(coalesced)

    def test_broadcast_from_any_root(self):
        self.check_all(broadcasts)

    def test_all_gather(self):
        self.check_all(all_gathers)

    def test_reduce_scatter_leaves_its_input(self):
        self.check_all(reduce_scatters)

    def test_gather_and_scatter(self):
        self.check_all(gathers_and_scatters)

    def test_all_to_all_of_equal_and_other_sizes(self):
        self.check_all(all_to_alls)

    def test_messages_by_tag_and_from_any_rank(self):
        self.check_all(messages)

    def test_operations_run_beside_the_program_in_order(self):
        self.check_all(asynchronous)

    def test_operations_that_are_waited_for_keep_the_order(self):
        self.check_all(waited_for)

    def test_threads_wait_for_their_operations(self):
        self.check_all(callers)

    def test_several_tensors_of_a_rank(self):
        self.check_all(several_of_a_rank)

    def test_callbacks_start_operations_and_wait_for_them(self):
        self.check_all(callbacks)

    def test_what_cannot_be_done_is_refused_at_once(self):
        run(2, refusals)

    def test_a_failing_body_is_seen(self):
        with self.assertRaisesRegex(Failure, "ZeroDivisionError"):
            run(2, lambda rank: 1 // rank)


if __name__ == "__main__":
    unittest.main()
