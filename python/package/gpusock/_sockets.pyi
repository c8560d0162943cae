"""What sockets/module.cpp defines, for type checkers and editors. docs/python.md explains it."""

from collections.abc import Iterable
from types import EllipsisType, TracebackType
from typing import Any, Protocol

from typing_extensions import Buffer, Self

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

_Address = str | tuple[str, int]
_Memory = Buffer | _DLPack

class Context:
    """Sockets of this process, and the thread that serves them. Threads may share it.

    `secret`: what peers must share; None: that of GPUSOCK_SECRET. `timeout`: seconds that a call waits, of new sockets
    and of connect(); None: for ever. `ring_bytes`: capacity of a socket's rings; 0: the best one. Other options come
    from the environment's GPUSOCK_ variables. ValueError: an option, or a variable, has an invalid value.
    """

    def __init__(
        self,
        *,
        secret: str | None = None,
        sockets_max: int = 1024,
        ring_bytes: int = 0,
        timeout: float | None = 60.0,
        handshake_timeout: float = 5.0,
        p2p: bool = True,
    ) -> None: ...
    def connect(self, address: _Address, timeout: float | None | EllipsisType = ...) -> Socket:
        """A connected socket. `address`: "HOST:PORT[,link=…][,ring=…][,type=…]", or (HOST, PORT).

        `timeout`: seconds; None: for ever; left out: the context's.

        ValueError: an address that means nothing. socket.gaierror: an unknown name. OSError: what Net::connect lists.
        """

    def listen(self, address: _Address, backlog: int = 16) -> Listener:
        """A socket that listens. Port 0: one that is free (Listener.address). OSError: what Net::listen lists."""

    def poll(
        self, sockets: Iterable[Socket | Listener | tuple[Socket | Listener, int]], timeout: float | None = None
    ) -> list[tuple[Socket | Listener, int]]:
        """Waits until a socket has an event, at most so many seconds. Returns each that has one, with its events.

        Events are select.POLLIN (of sockets without any) and select.POLLOUT; POLLERR, POLLHUP, and POLLNVAL of a closed
        socket, are always reported.
        """

    def close(self) -> None:
        """Ends calls of other threads with OSError (ECANCELED), delivers what was sent for up to 2 s, closes all."""

    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None: ...

class Socket:
    """A connected socket, with the calls of socket.socket. Context.connect() and Listener.accept() make it."""

    def send(self, data: _Memory, flags: int = 0) -> int:
        """Sends bytes, and returns how many. It waits until there is room for one at least. A record is sent whole."""

    def sendall(self, data: _Memory, flags: int = 0) -> None:
        """Sends all bytes. After an error nobody knows how many were sent."""

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Up to so many bytes, at least one; none: the peer has ended its direction.

        OSError (EMSGSIZE): the record is longer. It stays there.
        """

    def recv_into(self, buffer: _Memory, nbytes: int = 0, flags: int = 0) -> int:
        """Receives into memory as recv(), and returns how many bytes. nbytes 0: as many as the memory has."""

    def shutdown(self, how: int) -> None:
        """Ends one direction or both: socket.SHUT_RD, SHUT_WR, SHUT_RDWR."""

    def getpeername(self) -> tuple[str, int]: ...
    @property
    def link(self) -> str:
        """What carries the bytes: "p2p", "tcp", "verbs", "fabric"."""

    def close(self) -> None:
        """Closes the socket. What was sent still arrives. Calls of other threads get OSError (EBADF)."""

    def settimeout(self, value: float | None) -> None: ...
    def gettimeout(self) -> float | None: ...
    def setblocking(self, flag: bool) -> None: ...
    def getblocking(self) -> bool: ...
    def getsockname(self) -> tuple[str, int]: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None: ...

class Listener:
    """A socket that listens. Context.listen() makes it."""

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """Waits for a connection. Returns its socket, which has the context's timeout, and the peer's address."""

    @property
    def address(self) -> str:
        """Where it listens, as connect() takes it."""

    def close(self) -> None:
        """Closes it, and resets connections that nobody has accepted."""

    def settimeout(self, value: float | None) -> None: ...
    def gettimeout(self) -> float | None: ...
    def setblocking(self, flag: bool) -> None: ...
    def getblocking(self) -> bool: ...
    def getsockname(self) -> tuple[str, int]: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None: ...
