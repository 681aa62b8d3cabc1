"""Reads a ModelProto into a program; one error lists all that is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dlprim.onnx import operators as _operators  # noqa: F401  (fills the registry)
from dlprim.onnx.attributes import attributes_of, signature_of
from dlprim.onnx.ports import declared, output_of, port_of
from dlprim.onnx.program import Block, Program, Step, block_of, names_read, problems_of
from dlprim.onnx.proto import Folders, ModelError, array_of
from dlprim.onnx.registry import ON_VALUES, OPERATORS, RefusedError, operator_for
from dlprim.onnx.schema import types_of_inputs
from dlprim.onnx.strings import in_codes

OLDEST_OPSET, NEWEST_OPSET = 1, 28
# What says nothing of results, and the first opset without it.
_HINTS = {"consumed_inputs": 6, "output_sequence": 7}
# Of functions that call functions, and of bodies in bodies.
MOST_DEPTH = 32
# Functions called by functions can make a short file long.
MOST_STEPS = 1 << 18
MOST_LISTED = 20

# The attributes of nodes that are graphs.
_BODIES = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body",),
    "SequenceMap": ("body",),
}


@dataclass
class _Scope:
    """Names that nodes see: of a graph, of a function or of a body.

    Attributes
    ----------
    opsets : mapping
        The version of every domain.
    names : dict
        What values are called in the program.
    outer : _Scope or None
        What a body sees besides.
    given : mapping
        The attributes of the call of a function.
    prefix : str
    depth : int
    made : set of str
        Names that have a definition.
    """

    opsets: Mapping[str, int]
    names: dict[str, str] = field(default_factory=dict)
    outer: _Scope | None = None
    given: Mapping[str, Any] | None = None
    prefix: str = ""
    depth: int = 0
    made: set[str] = field(default_factory=set)

    def find(self, name: str) -> str | None:
        """What the value is called in the program, None where there is no such value."""
        if name in self.names:
            return self.names[name]
        return self.outer.find(name) if self.outer is not None else None


class _Reader:
    def __init__(self, model: Any, folders: Folders) -> None:
        self.folders = folders
        self.tensors: dict[str, Any] = {}
        self.functions = {(_domain(it.domain), it.name, it.overload): it for it in model.functions}
        self.taken: set[str] = set()
        self.steps = 0
        self.scopes = 0

    def define(self, name: str, scope: _Scope) -> str:
        """Makes a name one of the scope's; gives what it is called in the program."""
        if name in scope.made:
            raise ModelError(f"'{name}' is made twice, expected one definition of every value")
        scope.made.add(name)
        if name not in scope.names:
            free = scope.prefix + name
            while free in self.taken:
                free += "'"
            self.taken.add(free)
            scope.names[name] = free
        return scope.names[name]

    def block(self, graph: Any, scope: _Scope) -> Block:
        """The nodes of a graph or of a body."""
        if graph.sparse_initializer:
            raise ModelError("initializers are sparse, expected dense ones")
        for tensor in graph.initializer:
            self.tensors[self.define(tensor.name, scope)] = tensor
        steps = self.read(graph.node, scope)
        outputs = [scope.find(it.name) for it in graph.output]
        for name, it in zip(outputs, graph.output, strict=True):
            if name is None:
                raise ModelError(f"output '{it.name}' is made by no node")
        return block_of(steps, [name for name in outputs if name is not None])

    def read(self, nodes: Sequence[Any], scope: _Scope) -> list[Step]:
        for node in nodes:
            for name in filter(None, node.output):
                self.define(name, scope)
        steps: list[Step] = []
        for place, node in enumerate(nodes):
            steps += self.node(node, scope, node.name or f"#{place}")
        return steps

    def node(self, node: Any, scope: _Scope, name: str) -> list[Step]:
        """The steps of a node: one, or those of the function that it calls."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise ModelError(f"the model has more than {MOST_STEPS} nodes")
        domain = _domain(node.domain)
        version = scope.opsets.get(domain)
        opset = f"{domain} {version}".strip() if version is not None else f"{domain} unknown"
        label = f"node '{scope.prefix}{name}' ({node.op_type}, opset {opset})"
        inputs = tuple(scope.find(it) if it else "" for it in node.input)
        outputs = tuple(scope.names[it] if it else "" for it in node.output)
        missing = [it for it, found in zip(node.input, inputs, strict=True) if found is None]
        problems = tuple(f"it reads '{it}', which nothing makes" for it in missing)
        step = Step(label, name, None, tuple(it or "" for it in inputs), outputs, problems=problems)
        protos = _resolved(node.attribute, scope.given)
        function = self.functions.get((domain, node.op_type, node.overload))
        try:
            if function is not None:
                return self.call(function, step, protos, scope)
            bodies = _BODIES.get(node.op_type, ()) if domain == "" else ()
            rest = {it: proto for it, proto in protos.items() if it not in bodies}
            step = self.known(step, (domain, node.op_type, version), rest)
            if bodies:
                step = replace(step, bodies=self.bodies(bodies, protos, step, scope))
            return [step]
        except RefusedError as error:
            return [replace(step, problems=(*problems, str(error)))]

    def known(
        self, step: Step, key: tuple[str, str, int | None], protos: Mapping[str, Any]
    ) -> Step:
        domain, name, version = key
        if version is None:
            raise RefusedError(f"the model imports no opset of domain '{domain}'")
        function = operator_for(domain, name, version)
        on_values = operator_for(domain, name, version, on_values=True)
        operator = function or on_values
        if operator is None:
            versions = OPERATORS.get((domain, name), ON_VALUES.get((domain, name)))
            raise RefusedError(
                f"expected opset {versions[-1].since} or later"
                if versions
                else "there is no such operator here"
            )
        signature = signature_of(operator)
        given = step.inputs
        while given and not given[-1]:
            given = given[:-1]
        least, most = signature.least, signature.most
        if len(given) < least or (most is not None and len(given) > most):
            raise RefusedError(f"it has {len(given)} inputs, expected {signature.range()}")
        for place, it in enumerate(given):
            if not it and place not in signature.optional:
                raise RefusedError(f"input {place} is left out, expected one")
        protos = {it: proto for it, proto in protos.items() if version >= _HINTS.get(it, 0)}
        attributes = attributes_of(protos, operator, self.folders)
        if signature.asks_outputs:
            attributes["outputs"] = len(step.outputs)
        types = types_of_inputs(domain, name, NEWEST_OPSET)
        step = replace(step, inputs=given, types=types, attributes=attributes)
        return replace(
            step,
            function=None if function is None else function.function,
            on_values=None if on_values is None else on_values.function,
        )

    def bodies(
        self, names: Sequence[str], protos: Mapping[str, Any], step: Step, scope: _Scope
    ) -> tuple[Block, ...]:
        """The graphs in the attributes of a node; they see what it sees."""
        found = []
        for name in names:
            if name not in protos or not protos[name].HasField("g"):
                raise RefusedError(f"attribute '{name}' is missing, expected a graph")
            graph = protos[name].g
            is_branch = len(names) == 2
            if is_branch and (graph.input or len(graph.output) != len(step.outputs)):
                raise RefusedError(
                    f"graph '{name}' has {len(graph.input)} inputs and {len(graph.output)} "
                    f"outputs, expected none and the {len(step.outputs)} of the node"
                )
            inner = self.inner(scope, scope.opsets, step.name)
            inner.outer, inner.given = scope, scope.given
            inputs = tuple(self.define(it.name, inner) for it in graph.input)
            block = self.block(graph, inner)
            ports = tuple(map(declared, graph.output))
            found.append(replace(block, inputs=inputs, ports=ports, reads=block.reads - {*inputs}))
        return tuple(found)

    def call(
        self, function: Any, step: Step, protos: Mapping[str, Any], scope: _Scope
    ) -> list[Step]:
        """The steps of a function of the model, its values under the names of the caller."""
        if len(step.inputs) > len(function.input) or len(step.outputs) > len(function.output):
            raise RefusedError(
                f"it has {len(step.inputs)} inputs and {len(step.outputs)} outputs, expected at "
                f"most {len(function.input)} and {len(function.output)} of its function"
            )
        defaults = {it.name: it for it in function.attribute_proto}
        opsets = {_domain(it.domain): it.version for it in function.opset_import}
        inner = self.inner(scope, opsets, step.name)
        inner.given = {**defaults, **protos}
        for formal in function.input:
            self.define(formal, inner)
        inner.names.update(zip(function.input, step.inputs, strict=False))
        inner.names.update({it: "" for it in function.input[len(step.inputs) :]})
        results = [pair for pair in zip(function.output, step.outputs, strict=False) if pair[1]]
        handed = [(formal, name) for formal, name in results if formal in inner.made]
        inner.names.update(pair for pair in results if pair not in handed)
        steps = self.read(function.node, inner)
        for formal, _ in results:
            if formal not in inner.made:
                raise RefusedError(f"output '{formal}' of its function is made by no node")
        identity = operator_for("", "Identity", NEWEST_OPSET)
        assert identity is not None
        for formal, name in handed:
            source = (inner.names[formal],)
            steps.append(Step(step.label, step.name, identity.function, source, (name,)))
        if step.problems:
            steps.append(step)
        return steps

    def inner(self, scope: _Scope, opsets: Mapping[str, int], name: str) -> _Scope:
        if scope.depth == MOST_DEPTH:
            raise ModelError(f"functions or bodies are nested deeper than {MOST_DEPTH}")
        self.scopes += 1
        prefix = f"{scope.prefix}{name}/{self.scopes}/"
        return _Scope(opsets, prefix=prefix[-200:], depth=scope.depth + 1)


def program_of(model: Any, folders: Folders) -> Program:
    """The program of a ModelProto.

    Raises
    ------
    ModelError
        Where the file is not sound, or nodes are refused: all of them are listed.
    """
    opsets = {_domain(it.domain): it.version for it in model.opset_import}
    if not opsets and model.ir_version < 3:  # which did not say it
        opsets[""] = 1
    version = opsets.get("", NEWEST_OPSET)
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise ModelError(f"opset is {version}, expected {OLDEST_OPSET} to {NEWEST_OPSET}")
    reader, scope, graph = _Reader(model, folders), _Scope(opsets), model.graph
    if not graph.output:
        raise ModelError("the model has no outputs, expected at least one")
    initial = {it.name for it in graph.initializer}
    ports = tuple(port_of(it)._replace(is_optional=it.name in initial) for it in graph.input)
    for port in ports:
        if port.name not in initial:
            reader.define(port.name, scope)
    block = reader.block(graph, scope)
    problems = problems_of(block)
    if problems:
        more = len(problems) - MOST_LISTED
        lines = problems[:MOST_LISTED] + [f"... and {more} more"] * (more > 0)
        raise ModelError("\n".join(["the model cannot be run:", *lines]))
    read = names_read(block)
    arrays = {
        name: in_codes(array_of(tensor, folders))
        for name, tensor in reader.tensors.items()
        if name in read
    }
    outputs = tuple(
        output_of(it, name, block) for it, name in zip(graph.output, block.outputs, strict=True)
    )
    names = {port.name for port in ports}
    return Program(
        ports,
        outputs,
        block,
        {name: array for name, array in arrays.items() if name not in names},
        {name: in_codes(array_of(reader.tensors[name], folders)) for name in names & initial},
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _resolved(protos: Sequence[Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Attributes by name, those of a function's call in the place of references to them."""
    found: dict[str, Any] = {}
    for proto in protos:
        if not proto.ref_attr_name:
            found[proto.name] = proto
        elif given is None:
            raise ModelError(
                f"attribute '{proto.name}' is '{proto.ref_attr_name}' of a function, in no function"
            )
        elif proto.ref_attr_name in given:
            found[proto.name] = given[proto.ref_attr_name]
    return found
