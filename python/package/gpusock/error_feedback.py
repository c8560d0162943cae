"""A hook of DDP: gradients travel as int8, or only the largest ones do. What is not sent is added to later gradients.

Sources: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
Speech DNNs", Interspeech 2014 (error feedback); Lin et al., "Deep Gradient Compression", ICLR 2018 (the largest ones).
"int8" and "top" mean what they mean in gpusock's stores: param_sync/codec/wire_format.hpp, largest.cuh.
"""

import math

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket  # torch.distributed's, whose names type checkers do not see

__all__ = ["ErrorFeedback", "ddp_hook"]

_BLOCK = 64  # floats that have a scale together
_MOST = 127  # the largest integer
_SCALE = 4  # bytes of a scale, in front of its block
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


class ErrorFeedback:
    """The state of ddp_hook: how gradients are sent, and what each parameter's gradients still have to send.

    codec: "int8" sends each float as a multiple of a 127th of the largest one of its block of 64. "top" sends the
    `share` of a bucket's floats with the largest absolute values (greater than 0, at most 0.5; 0.01 if not given).
    process_group: the one of the model, which has the back end gpusock. Each model needs a state of its own, with the
    same arguments on all ranks. Raises ValueError if an argument is invalid.
    """

    def __init__(
        self, codec: str, *, share: float | None = None, process_group: dist.ProcessGroup | None = None
    ) -> None:
        if codec not in ("int8", "top"):
            raise ValueError(
                f'gpusock: there is no codec "{codec}" for gradients: take "int8" or "top"; for 16 bits take '
                "PyTorch's bf16_compress_hook or fp16_compress_hook"
            )
        if codec == "int8" and share is not None:
            raise ValueError('gpusock: "int8" sends all floats: leave out share, which is of "top"')
        if share is None:
            share = 0.01
        if not 0 < share <= 0.5:
            raise ValueError(
                f"gpusock: a share of {share}: take more than 0, and at most 0.5, as each of these floats takes the "
                "bytes of two"
            )
        self.codec = codec
        self.share = share
        self.process_group = process_group
        self._buckets: dict[int, tuple[list[torch.Tensor], torch.Tensor]] = {}  # parameters, and their memory
        self._parts: dict[int, torch.Tensor] = {}  # by id of a parameter: its part of a bucket's memory
        self._loaded: list[torch.Tensor] = []  # keeps parameters, and so their ids, until they are in buckets

    def withheld(self, parameter: torch.Tensor) -> torch.Tensor:
        """What this rank has not sent yet of the sum of a parameter's gradients: float32, in the parameter's shape.

        On all ranks together it is what the sum of all ranks' gradients lacks. Call it between two backward passes.
        """
        part = self._parts.get(id(parameter))
        if part is None:
            return torch.zeros(parameter.shape)
        return part.view(parameter.shape).clone()

    def state_dict(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """What this rank withholds of each parameter of a module that has gradients, by its name: for a checkpoint.

        Each rank saves its own. Call it between two backward passes.
        """
        return {name: self.withheld(parameter) for name, parameter in _learned(module)}

    def load_state_dict(self, module: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
        """Withholds what a checkpoint says, instead of what is withheld now.

        Training goes on as if it had not been interrupted, but that DDP fills its buckets in another order in a model's
        first step, so that other floats share blocks or are the largest of a bucket. What counts is the sum over all
        ranks: if there are other ranks than before, one may load the sum of several tensors, or zeros. Raises
        ValueError, and changes nothing, if names or shapes are not the module's.
        """
        parameters = dict(_learned(module))
        if wrong := sorted(parameters.keys() ^ state.keys()):
            raise ValueError(
                f"gpusock: load_state_dict: {wrong[0]} is a parameter of the module or of the checkpoint, but not of "
                "both: give the module that state_dict() got"
            )
        for name, parameter in parameters.items():
            if state[name].shape != parameter.shape:
                raise ValueError(
                    f"gpusock: load_state_dict: {name} has the shape {tuple(parameter.shape)}, in the checkpoint "
                    f"{tuple(state[name].shape)}"
                )
        self._buckets.clear()  # so that the next step makes memory, and fills it from the parts
        for name, parameter in parameters.items():
            part = state[name].detach().to("cpu", torch.float32, copy=True).reshape(-1)
            self._parts[id(parameter)] = part
        self._loaded = list(parameters.values())

    def _memory_of(self, bucket: GradBucket, padded: int) -> torch.Tensor:
        """What the bucket's parameters withhold, one after the other, and zeros: `padded` floats in all.

        DDP makes other buckets of the same parameters after the first step, so memory goes from parameter to parameter.
        """
        parameters, known = bucket.parameters(), self._buckets.get(bucket.index())
        if known is not None and list(map(id, known[0])) == list(map(id, parameters)):
            return known[1]
        memory, begin = torch.zeros(padded), 0
        for parameter in parameters:
            part = memory[begin : begin + parameter.numel()]
            if (old := self._parts.get(id(parameter))) is not None:
                part.copy_(old)
            self._parts[id(parameter)] = part
            begin += parameter.numel()
        self._buckets[bucket.index()] = parameters, memory
        return memory


def ddp_hook(state: ErrorFeedback, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket's gradients of all ranks: model.register_comm_hook(gpusock.ErrorFeedback("int8"), ddp_hook).

    All ranks get the same bits, the same in each run. Each rank sends 1.06 bytes of a float where all_reduce sends 4
    ("int8"), or 8 bytes to each other rank of each float that is sent ("top"). A block with a number that is not finite
    is received as NaN, and what such numbers withhold is dropped. Raises ValueError for gradients of other types than
    float32, bfloat16 and float16, and for a group whose back end is not gpusock.
    """
    buffer, group = bucket.buffer(), state.process_group or dist.group.WORLD
    if group is None or "gpusock" not in dist.get_backend_config(group):
        # Others do not say in which order operations run that a hook's second step starts.
        raise ValueError("gpusock: ddp_hook needs a process group of the back end gpusock")
    if buffer.layout != torch.strided or buffer.dtype not in _TYPES or buffer.device.type != "cpu":
        raise ValueError(
            f"gpusock: ddp_hook: a gradient of {buffer.dtype} ({buffer.layout}, {buffer.device}): it takes dense ones "
            "of float32, bfloat16 and float16 on the CPU"
        )
    exchange = _exchange_int8 if state.codec == "int8" else _exchange_largest
    return exchange(state, bucket, buffer, group)


def _learned(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


_Averaged = torch.futures.Future[torch.Tensor]
_Came = torch.futures.Future[list[torch.Tensor]]


def _exchange_int8(
    state: ErrorFeedback, bucket: GradBucket, buffer: torch.Tensor, group: dist.ProcessGroup
) -> _Averaged:
    """Each rank averages a piece of all ranks' gradients and sends it to all, both times as int8."""
    ranks, rank, count = dist.get_world_size(group), dist.get_rank(group), buffer.numel()
    blocks_of_piece = -(-count // (_BLOCK * ranks))
    memory = state._memory_of(bucket, blocks_of_piece * _BLOCK * ranks)
    memory[:count] += buffer
    blocks = memory.view(-1, _BLOCK)
    sent = encoded(blocks)
    _withhold(blocks, sent)
    received = torch.empty_like(sent)
    pieces_came = _future_of(dist.all_to_all_single(received, sent, group=group, async_op=True))

    def average(came: _Came) -> torch.Tensor:
        came.value()  # raises the exchange's error
        pieces = decoded(received).view(ranks, -1, _BLOCK)
        mean = pieces[0].clone()
        for piece in pieces[1:]:  # in the order of ranks
            mean += piece
        mean /= ranks
        sent_mean = encoded(mean)
        _withhold(mean, sent_mean)
        # What the average lacks is as if this rank had withheld it: so any rank may have this piece next.
        memory.view(ranks, -1, _BLOCK)[rank] += mean * ranks
        whole = torch.empty_like(received)
        _future_of(dist.all_gather_into_tensor(whole, sent_mean, group=group, async_op=True)).wait()
        return buffer.copy_(decoded(whole).view(-1)[:count])

    return pieces_came.then(average)


def _exchange_largest(
    state: ErrorFeedback, bucket: GradBucket, buffer: torch.Tensor, group: dist.ProcessGroup
) -> _Averaged:
    """Each rank sends its largest floats, with their numbers, to all."""
    ranks, count = dist.get_world_size(group), buffer.numel()
    memory = state._memory_of(bucket, count)
    memory += buffer
    chosen = largest(memory, math.ceil(state.share * count))
    sent = torch.stack((chosen.to(torch.int32), memory[chosen].view(torch.int32)))
    memory[chosen] = 0
    received = torch.empty(ranks * 2, chosen.numel(), dtype=torch.int32)
    changes_came = _future_of(dist.all_gather_into_tensor(received, sent, group=group, async_op=True))

    def average(came: _Came) -> torch.Tensor:
        came.value()
        total = torch.zeros(count)
        for indices, values in received.view(ranks, 2, -1):  # in the order of ranks; a rank's indices differ
            total[indices] += values.view(torch.float32)
        return buffer.copy_(total.div_(ranks))

    return changes_came.then(average)


def encoded(blocks: torch.Tensor) -> torch.Tensor:
    """Rows of 64 floats as int8: the bytes of a row are its scale, a float32, and an integer for each float."""
    scale = blocks.abs().amax(1, keepdim=True) / _MOST
    numbers = torch.where(scale > 0, blocks / scale, 0).nan_to_num_(0).round_().clamp_(-_MOST, _MOST)
    row = torch.empty(len(blocks), _SCALE + _BLOCK, dtype=torch.int8)
    row[:, :_SCALE] = scale.view(torch.int8)
    row[:, _SCALE:] = numbers
    return row


def decoded(rows: torch.Tensor) -> torch.Tensor:
    """The floats of rows that encoded() has made. A scale that is not finite makes its row NaN."""
    scale = rows[:, :_SCALE].contiguous().view(torch.float32)
    return rows[:, _SCALE:].float().mul_(scale)


def largest(values: torch.Tensor, most: int) -> torch.Tensor:
    """The indices of the `most` largest absolute values; of equal ones the first. NaN is larger than all numbers."""
    sizes = values.view(torch.int32) & 0x7FFF_FFFF  # absolute values as bits, which have the same order
    threshold = sizes.topk(most).values[-1]
    above = (sizes > threshold).nonzero().view(-1)
    equal = (sizes == threshold).nonzero().view(-1)
    return torch.cat((above, equal[: most - above.numel()]))


def _withhold(values: torch.Tensor, sent: torch.Tensor) -> None:
    """Leaves of the values what the receivers do not get of them; nothing of those that are not finite."""
    values -= decoded(sent)
    values.nan_to_num_(0, 0, 0)


def _future_of(work: dist.Work | None) -> _Came:
    assert work is not None, "this rank is not in the group"
    return work.get_future()
