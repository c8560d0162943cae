"""What module.cpp defines, for type checkers."""

import datetime

from torch._C._distributed_c10d import Backend, Store, Work

class Options(Backend.Options):
    """What init_process_group() and new_group() take as pg_options. All ranks give the same ones."""

    all_reduce: str
    deterministic: bool
    def __init__(self, timeout: datetime.timedelta = ...) -> None: ...

def abort(work: Work) -> None: ...
def end_all(patience: datetime.timedelta) -> None: ...
def make(
    store: Store, rank: int, size: int, options: Options, address: str, secret: str, ranks: list[int]
) -> Backend: ...
def traffic(group: Backend) -> tuple[int, int]: ...
