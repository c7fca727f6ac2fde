"""Methods of the clients: the operations, executed by a transport."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

L = TypeVar("L")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Group(Generic[L]):
    """Operations with one kind of object."""

    def __init__(self, link: L) -> None:
        self._link = link


class Method(Generic[L, P, T]):
    """A method with the parameters and the documentation of an operation.

    Args:
        begin: Executes what the operation returns.
        operation: A function of :mod:`hartline.operations`.
        shown: How the documentation shows what the method returns. ``{}`` is what the operation's
            plan or stream has.

    """

    def __init__(
        self, begin: Callable[[L, S], T], operation: Callable[P, S], shown: str = "{}"
    ) -> None:
        def method(group: Group[L], /, *args: P.args, **kwargs: P.kwargs) -> T:
            return begin(group._link, operation(*args, **kwargs))

        signature = inspect.signature(operation)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        inner = str(signature.return_annotation).partition("[")[2].removesuffix("]")
        signature = signature.replace(
            parameters=[own, *signature.parameters.values()],
            return_annotation=shown.format(inner),
        )
        method.__signature__ = signature  # type: ignore[attr-defined]
        method.__doc__ = operation.__doc__
        method.__module__ = operation.__module__
        self._function: Callable[..., Any] = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._function.__name__ = name
        self._function.__qualname__ = f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, group: None, owner: type) -> Callable[Concatenate[Group[L], P], T]: ...
    @overload
    def __get__(self, group: Group[L], owner: type) -> Callable[P, T]: ...
    def __get__(self, group: Group[L] | None, owner: type) -> Callable[..., T]:
        bound: Callable[..., T] = self._function.__get__(group, owner)
        return bound
