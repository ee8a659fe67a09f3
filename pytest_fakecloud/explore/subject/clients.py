"""Clients that have inputs, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...core.errors import ContractError
from .programs import Program

Inputs: TypeAlias = Mapping[str, Any]
"""The input of each client that has drawn ones, by the name of the client."""


class DrawnClient:
    """A client whose input is drawn."""

    __name__ = "client"
    functions: Sequence[Callable[..., object]]
    """The functions that the client calls."""

    def __call__(self) -> object:
        raise ContractError(
            "drawn() and operations() are clients of explore(), which draws their input: pass them "
            "to explore(), or call your function itself"
        )

    def call(self, value: Any) -> object:
        """Run the client with an input, which a copy protects from changes."""
        raise NotImplementedError


def has_drawn_inputs(programs: Sequence[Program]) -> bool:
    """Return whether the input of any client is drawn."""
    return any(isinstance(program.function, DrawnClient) for program in programs)


def with_inputs(programs: Sequence[Program], inputs: Inputs) -> list[Program]:
    """Return programs that run with these inputs."""
    return [
        Program(
            program.name, partial(program.function.call, inputs[program.name]), program.is_worker
        )
        if isinstance(program.function, DrawnClient)
        else program
        for program in programs
    ]


def functions_of(function: Callable[..., object]) -> Sequence[Callable[..., object]]:
    """Return the functions that a client calls, or the client itself if its input is not drawn."""
    source = getattr(getattr(function, "func", function), "__self__", function)
    return source.functions if isinstance(source, DrawnClient) else [function]


def functions_of_all(programs: Sequence[Program]) -> Iterator[Callable[..., object]]:
    """Yield the functions that the clients and workers of an exploration call."""
    for program in programs:
        yield from functions_of(program.function)


def text_of_inputs(inputs: Inputs) -> str:
    """Return inputs as calls: ``ann: deposit(amount=5), balance(); bob: balance()``."""
    texts = []
    for name, value in inputs.items():
        if isinstance(value, Mapping):
            texts.append(f"{name}: {_arguments(value)}")
        else:
            calls = [f"{operation}({_arguments(arguments)})" for operation, arguments in value]
            texts.append(f"{name}: {', '.join(calls) or 'nothing'}")
    return "; ".join(texts)


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def replay_text(schedule: str, inputs: Inputs) -> str:
    """Return the arguments of ``replay_schedule`` that replay a trial."""
    return f'"{schedule}"' + (f", inputs={dict(inputs)!r}" if inputs else "")
