"""What every layer and model is: parameters in forward order, and a forward pass on arrays.

Nothing here computes. A module is run once on arrays that know their shapes and dtypes alone, and
what it does to them becomes networks, with their gradients (front.py): layers are written as models
are, and neither has a backward pass, a layout or a buffer.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from dlprim.arguments.arrays import Array
from dlprim.arguments.scalars import flag
from dlprim.arguments.traced import RUNNING
from dlprim.nn.attributes import KINDS, entries
from dlprim.nn.calls import as_network, label, require_mode_by_name, require_read_of_arrays
from dlprim.nn.context import Context
from dlprim.nn.parameter import Parameter
from dlprim.nn.state_dicts import add_to_state, copy_state
from dlprim.nn.summary import Summary, summary, tree, tree_in_html

if TYPE_CHECKING:
    from dlprim.nn.front import Front

Ready: TypeAlias = Callable[[Parameter], None]


class _Tracing(threading.local):
    """How modules are traced in this thread.

    Attributes
    ----------
    mode : bool or None
        What a call says instead of the modes of modules.
    freezes : bool
        Whether networks for inference may have parameters as constants. Last bits then depend on
        what ran before.
    watch : callable or None
        ``watch(module, run)`` gives what ``run()`` does, which runs the `forward` of a module.
    """

    mode: bool | None = None
    freezes = True
    watch: Callable[[Any, Callable[[], Any]], Any] | None = None


TRACING = _Tracing()


class Module(ABC):
    """A layer, or layers made into one.

    Attributes
    ----------
    name : str
        In the model; empty for the model itself.
    context : Context
        Shared with all layers of a model.
    training : bool
        The mode, which `train` and `eval` set; in `forward` that of the call.
    listed : tuple of str
        Arguments of `forward` whose lists of integers are data, as arrays are: integers in any
        other list are part of the network. Lists of anything else are refused there.
    """

    __slots__ = ("__dict__", "__weakref__", "_front")
    _front: Front  # of the module as a whole model

    name = ""
    listed: tuple[str, ...] = ()
    _container: weakref.ref[Module] | None = None  # the one that it is in
    _changes = 0  # how often `changed` was called

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if cls.backward is not Module.backward:
            raise TypeError(
                f"{cls.__name__} has a backward of its own, expected a forward on arrays alone, "
                "whose gradient follows from it; docs/nn.md says how it is written"
            )
        cls.forward = as_network(cls.forward)  # type: ignore[method-assign]
        for name, it in vars(cls).items():
            if isinstance(it, Module | Parameter):
                raise TypeError(
                    f"{name} of {cls.__name__} is a {type(it).__name__} of the class, which all "
                    f"its instances would share, expected self.{name} = ... in __init__"
                )

    def __init__(self) -> None:
        self.name = ""
        self.context = Context()

    def __getstate__(self) -> dict[str, Any]:
        return {name: it for name, it in self.__dict__.items() if name != "_container"}

    def _claim(self) -> None:
        """Makes the layers inside this module's own; those of another one it would rename."""
        if self._contained():
            return  # it has them since it was made
        for name, child in self.children().items():
            other = child._container and child._container()
            if child is self or (other is not None and other is not self):
                raise ValueError(
                    f"{name} of {type(self).__name__} is {type(child).__name__} "
                    f"{child.name!r} of another {type(other or self).__name__}, expected a layer "
                    "that is in no other module; copy.deepcopy makes one"
                )
            child._container = weakref.ref(self)

    def _forget(self) -> None:
        """Drops what a training forward in another context has left."""
        if hasattr(self, "_front"):
            self._front.forget()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for layer in self._contained().values():
            if layer._container is None:
                layer._container = weakref.ref(self)

    def _contained(self) -> dict[str, Module]:
        """The layers that are in this container and in no other, by what errors call them."""
        return {}

    def _contain(self) -> None:
        """Refuses layers that are in two places: one of these would rename the other's."""
        places: dict[int, str] = {}
        for place, layer in self._contained().items():
            if not isinstance(layer, Module):
                kind = type(layer).__name__
                raise TypeError(f"{place} is of type {kind}, expected a dlprim.nn.Module")
            if id(layer) in places:
                raise ValueError(
                    f"{place} is the same layer as {places[id(layer)]}, expected one for each place"
                )
            places[id(layer)] = place
            other = layer._container and layer._container()
            if other is not None:
                named = f" {layer.name!r}" if layer.name else ""
                raise ValueError(
                    f"{place} is {type(layer).__name__}{named} of another {type(other).__name__}, "
                    "expected a layer that is in no other container; copy.deepcopy makes one"
                )
        for layer in self._contained().values():
            layer._container = weakref.ref(self)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The result of `forward` in the mode that `train` and `eval` set; training at first."""
        if RUNNING.tracer is not None:
            return self.in_trace(*args, **named)
        if "training" in named:
            raise TypeError(
                f"training is given in a call of {type(self).__name__}, expected it in "
                "model.forward(x, training=False), or model.eval() in front of model(x)"
            )
        require_mode_by_name(self, args)
        return self.front.run(args, named, self.training)

    @property
    def training(self) -> bool:
        mode = TRACING.mode if RUNNING.tracer is not None else None
        return vars(self).get("training", True) if mode is None else mode

    @training.setter
    def training(self, training: bool) -> None:
        vars(self)["training"] = training

    @property
    def front(self) -> Front:
        """What runs it as networks."""
        try:
            return self._front
        except AttributeError:
            from dlprim.nn.front import Front  # which takes long to import

            self._front = Front(self)
            return self._front

    def in_trace(self, *args: Any, **named: Any) -> Any:
        """Its result in the trace that is running, whose nodes are called as the module is."""
        before = RUNNING.place, RUNNING.layer
        is_own = type(self).__module__.startswith("dlprim.")
        RUNNING.place, RUNNING.layer = self.name or RUNNING.place, label(self) if is_own else ""
        try:
            if TRACING.watch is None:
                return self.forward(*args, **named)
            return TRACING.watch(self, partial(self.forward, *args, **named))
        except AttributeError as error:
            require_read_of_arrays(self, error, args, named)
            raise
        finally:
            RUNNING.place, RUNNING.layer = before

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of this module and all inside it, and returns the module.

        Raises
        ------
        TypeError
            mode is no bool.
        """
        mode = flag("mode", mode)
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """``train(False)``: what follows is inference."""
        return self.train(False)

    @abstractmethod
    def forward(self, *args: Any, **named: Any) -> Any:
        """The result, of arrays; ``model(x)`` calls it, in a trace.

        It is written with NumPy, functions of dlprim and formulas, parameters, which are arrays
        there, and other modules, ``self.layer(x)``; docs/nn.md says more.

        Parameters
        ----------
        *args, **named
            float32 or bfloat16 arrays, integers, bool; also in dicts, lists and tuples. Between a
            training forward and `backward`, which reads them again, they stay as they are: they are
            not copied. Where samples show that one was written, `backward` refuses.
        training : bool, optional
            By name: overrides the mode that `train` and `eval` set, of what is inside, too. Without
            it each module inside is in its own mode.
        """

    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        """The gradient with respect to x of the latest training `forward`.

        Gradients of all parameters inside are written, those that x does not meet to 0.

        Parameters
        ----------
        dy : array
            The gradient with respect to its result, nested as that is.
        ready : callable, optional
            Called with each parameter as soon as its gradient is final, the last layer's first, on
            another thread. It must not write parameters, which are still read.

        Returns
        -------
        array
            Of the shape of x, None of integers; a tuple of several inputs, without integers that
            were given by name. None from a layer that was made with ``first=True``.

        Raises
        ------
        RuntimeError
            No training `forward` precedes that no `backward` has followed yet.
        TypeError, ValueError
            dy has not the form of the result.
        """
        return self.front.back(dy, ready)

    def children(self) -> dict[str, Module]:
        """Layers by name, in forward order; an empty name adds nothing to the names inside.

        By default the attributes that are modules, in the order of their assignment, and those in
        attributes that are lists, tuples or dicts: ``blocks.0``, and ``blocks.0.1`` of lists in a
        list. What refers to a module that is elsewhere in the model is left out by a method of
        one's own.

        Raises
        ------
        TypeError, ValueError
            An attribute is a set with modules, which have no order there, or two are of one name.
        """
        return entries(self, Module)  # type: ignore[type-abstract]

    def _and_others(self, own: dict[str, Module], *within: Module) -> dict[str, Module]:
        """``own`` and the attributes that `children` has by default, as of subclasses, without
        those layers, what is inside of them and what they are ``within``."""
        known = set(map(id, (*own.values(), *within)))
        held = entries(self, Module)  # type: ignore[type-abstract]
        others = {name: it for name, it in held.items() if id(it) not in known}
        if not others:
            return dict(own)
        known = {id(it) for layer in own.values() for it in layer.modules()}
        others = {name: it for name, it in others.items() if id(it) not in known}
        for name in others:
            if name in own:
                raise ValueError(
                    f"two layers of {type(self).__name__} are called {name!r}, expected a name for "
                    "each"
                )
        return own | others

    def own_parameters(self) -> dict[str, Parameter]:
        """Of this layer, without those of its children: by default attributes, as `children`."""
        return entries(self, Parameter)

    def own_statistics(self) -> dict[str, Array]:
        """What belongs to the state but is not trained, as `own_parameters`."""
        return {}

    def _held_statistics(self) -> dict[str, Array]:
        """The same for who does not write them."""
        return self.own_statistics()

    def arguments(self) -> dict[str, Any] | None:
        """What the constructor takes to make a layer like this one; None where that is not known.

        `repr` shows it, and `dlprim.nn.save` stores it: numbers, strings, None, modules, and lists
        and dicts of them.
        """
        return None

    def __repr__(self) -> str:
        return tree(self)

    def _repr_html_(self) -> str:
        return tree_in_html(self)

    def summary(self, x: Any) -> Summary:
        """What each layer makes of an input: a table of shapes, parameters and multiply-adds.

        Nothing is computed: it is what inference would do.

        Parameters
        ----------
        x : array or tuple of int
            What `forward` takes, or its shape: then zeros, float32 or, of an `Embedding`, int64.

        Returns
        -------
        Summary
            ``print`` shows the table; `rows`, `parameters` and `multiply_adds` have the numbers.

        Raises
        ------
        TypeError, ValueError
            x is neither, or one that a layer does not take.
        """
        return summary(self, x)

    def changed(self) -> None:
        """Drops what was made of parameters for inference, in models around this one too.

        Needed only after a write to a bare address, ``parameter.value.ctypes.data``, into an array
        of NumPy's that is an attribute, or to an attribute of an object that is no module:
        everything else is seen without it.
        """
        if hasattr(self, "_front"):
            del self._front
        self._changes += 1  # an attribute, which networks of all models around compare
        for child in self.children().values():
            child.changed()

    def use(self, context: Context, name: str = "") -> None:
        """Shares ``context`` with all layers and gives them and their parameters names.

        Raises
        ------
        TypeError
            context is no `Context`.
        ValueError
            A layer is in two places, inside of itself, or of another module that uses it.
        """
        if not isinstance(context, Context):
            raise TypeError(f"context is {context!r}, expected a dlprim.nn.Context")
        for _ in self.modules():
            pass  # which refuses layers in two places
        self._claim()
        if context is not vars(self).get("context"):
            self._forget()
        self.context, self.name = context, name
        for key, parameter in self.own_parameters().items():
            parameter.name = joined(name, key)
        for key, child in self.children().items():
            child.use(context, joined(name, key))

    def modules(self) -> Iterator[Module]:
        """This one and all inside it, in forward order.

        Raises
        ------
        ValueError
            One of them is in two places, or inside of itself.
        """
        return (it for _, it in self._walk(self.name, set()))

    def _walk(self, path: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
        """The same, with the names that `use` gives them."""
        if id(self) in seen:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} is in two places of the model, or inside of "
                "itself, expected one place for each layer; copy.deepcopy makes another, and a "
                "children() of one's own leaves out what is a mere reference"
            )
        seen.add(id(self))
        yield path, self
        for key, child in self.children().items():
            yield from child._walk(joined(path, key), seen)

    def parameters(self) -> list[Parameter]:
        """All trained arrays in forward order.

        Raises
        ------
        ValueError
            A layer or a parameter is in two places: each of the two would overwrite the gradient.
        """
        found = [it for module in self.modules() for it in module.own_parameters().values()]
        if len(set(map(id, found))) < len(found):
            twice = next(it for it in found if sum(it is other for other in found) > 1)
            raise ValueError(
                f"{twice!r} is in two places of the model, expected one: backward of each would "
                "overwrite the gradient of the other"
            )
        return found

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """All trained arrays and their names in `state_dict`, in forward order.

        Raises
        ------
        ValueError
            As `parameters`.
        """
        self.parameters()  # which refuses what is in two places
        return [
            (joined(path, key), it)
            for path, module in self._walk(self.name, set())
            for key, it in module.own_parameters().items()
        ]

    def state_dict(self) -> dict[str, Array]:
        """Parameters and statistics by PyTorch's names, those of their places: copies.

        Raises
        ------
        ValueError
            Two of them have one name, or a layer is in two places.
        """
        return {name: array.copy() for name, array in self._state(is_read=True).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies parameters and statistics from arrays by PyTorch's names.

        Raises
        ------
        KeyError
            A name is missing or unknown; nothing was changed. ``num_batches_tracked``, which counts
            and acts on nothing, may be missing, and stays as it is.
        TypeError, ValueError
            A value is no array of numbers, has another shape, or is too large for float32; nothing
            was changed.
        """
        copy_state(self._state(), state)

    def _state(self, is_read: bool = False) -> dict[str, Array]:
        """The arrays themselves; those that are read alone are still known not to be written."""
        state: dict[str, Array] = {}
        for path, module in self._walk(self.name, set()):
            for key, parameter in module.own_parameters().items():
                array = parameter.held if is_read else parameter.value
                add_to_state(state, joined(path, key), array)
            statistics = module._held_statistics() if is_read else module.own_statistics()
            for key, array in statistics.items():
                add_to_state(state, joined(path, key), array)
        return state


def joined(prefix: str, name: str) -> str:
    """Names of a path, by dots."""
    return f"{prefix}.{name}" if prefix and name else prefix or name


KINDS.kinds = (Module, Parameter)
