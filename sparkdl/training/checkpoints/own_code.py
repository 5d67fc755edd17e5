"""What tells one version of a user's own classes from another, so that no run goes on with what other code learned."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import numpy as np

from sparkdl.specs import Spec
from sparkdl.training.checkpoints.installed import (
    is_compiled,
    is_imported,
    is_installed,
    is_installed_module,
    with_version,
)

MOST_VALUES = 100_000  # that are looked at; who holds more in a global holds data
FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR  # of code, that say what it does
WRAPPERS = ("PjitFunction", "_lru_cache_wrapper")  # what jax.jit and functools.cache make; the rest is no code
# What @dataclass, Python and `abc` write into a class; none of it is computed with, or it follows from the rest.
WRITTEN = {
    *("__module__", "__qualname__", "__doc__", "__annotations__", "__annotate__", "__annotate_func__", "__dict__"),
    *("__annotations_cache__", "__weakref__", "__firstlineno__", "__static_attributes__", "__abstractmethods__"),
    *("_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__replace__", "__slotnames__"),
    *("__parameters__", "__orig_bases__"),
}
WRITTEN_FOR_SPECS = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"}


class Code(NamedTuple):
    """What some classes compute.

    Attributes
    ----------
    digest : str
        Hexadecimal; equal in every process that has the same code.
    unknown : list of str
        What the code uses that the digest says nothing of, as "Class.method.name (a type)".
    """

    digest: str
    unknown: list[str]


def code_of(classes: Iterable[type]) -> Code:
    """The code of classes: their methods, defaults and own bases, and the functions and globals that these use.

    Lines, comments, docstrings and the names of variables do not count. What lies in other installed packages counts by
    its name and the package's version.
    """
    classes = sorted(classes, key=lambda cls: (cls.__module__, cls.__qualname__))
    walk = _Walk({cls.__module__.partition(".")[0] for cls in classes})
    for cls in classes:
        walk.add(cls.__name__, cls)
    return Code(walk.digest.hexdigest(), walk.unknown)


class _Walk:
    """Tells a digest of values and of all that they lead to, in an order that no process chooses by itself."""

    def __init__(self, own: set[str]) -> None:
        self.digest = hashlib.sha256()
        self.unknown: list[str] = []
        self._own = own  # packages whose code is looked at even if they are installed
        self._seen: dict[int, int] = {}
        self._values: list[Any] = []  # those seen, so that no other one gets the id of one of them
        self._path: list[str] = []
        self._sets: set[int] = set()  # that are being taken

    def add(self, name: str, value: Any) -> None:
        """Take a value that has a name."""
        self._tell("name", name)
        self._path.append(name)
        self._add(value)
        self._path.pop()

    def _tell(self, *tokens: Any) -> None:
        for token in tokens:
            data = token if isinstance(token, bytes) else str(token).encode()
            self.digest.update(b"%d:" % len(data) + data)

    def _is_told(self, value: Any) -> bool:
        """Whether a value was met before, as cycles and functions of several callers are; then that is told."""
        if id(value) in self._seen:
            self._tell("again", self._seen[id(value)])
            return True
        self._seen[id(value)] = len(self._values)
        self._values.append(value)
        return False

    def _add(self, value: Any) -> None:
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str)):
            kind = type(value)
            if kind.__module__ == "builtins":
                self._tell(kind.__name__, repr(value))
                return
        if isinstance(value, (bytes, bytearray)):
            self._tell("bytes", bytes(value))
        elif isinstance(value, tuple) and type(value) is tuple:
            self._tell("tuple", len(value))
            for item in value:
                self._add(item)
        elif isinstance(value, (set, frozenset)):
            self._add_set(value)
        elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
            self._add_array(value)
        elif isinstance(value, types.ModuleType):
            self._tell("module", *with_version(value.__name__))
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif not self._is_told(value):
            self._add_object(value)

    def _add_object(self, value: Any) -> None:
        depth = len(self._path)
        try:
            if len(self._values) > MOST_VALUES or is_compiled(value, self._own):
                self._leave(value)
            else:
                self._add_parts(value)
        except Exception:  # of a class of the user's own, or of one of C that cannot be taken apart
            del self._path[depth:]
            self._leave(value)

    def _add_parts(self, value: Any) -> None:
        if isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, (classmethod, staticmethod, types.MethodType)):
            self._tell(type(value).__name__)
            self._add(value.__func__)
            self._add(getattr(value, "__self__", None))
        elif isinstance(value, property):
            self._tell("property")
            for function in (value.fget, value.fset, value.fdel):
                self._add(function)
        elif isinstance(value, functools.cached_property):
            self._tell("cached_property")
            self._add(value.func)
        elif isinstance(value, (list, dict, types.MappingProxyType)):
            self._tell(type(value).__name__, len(value))
            for item in value.items() if isinstance(value, Mapping) else value:
                self._add(item)
        elif is_imported(value, self._own):
            self._tell("imported", *with_version(value.__module__), value.__qualname__)
        elif isinstance(value, Spec):
            self._tell("spec")
            self._add(type(value))
            for field in fields(value):
                self.add(field.name, getattr(value, field.name))
        else:
            self._add_reduced(value)

    def _add_array(self, value: Any) -> None:
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            self._tell(str(jax.random.key_impl(value)))
            value = jax.random.key_data(value)
        array = np.asarray(value)
        self._tell("array", array.dtype.str, array.shape)
        if array.dtype.hasobject:
            self._add(array.tolist())
        else:
            self._tell(np.ascontiguousarray(array).tobytes())

    def _add_class(self, cls: type) -> None:
        if is_installed(cls.__module__, self._own):
            self._tell("class", *with_version(cls.__module__), cls.__qualname__)
            return
        self._tell("class", len(cls.__bases__))
        for base in cls.__bases__:
            self._add(base)
        if (metaclass := type(cls)) is not type:
            self._add(metaclass)
        left_out = WRITTEN | WRITTEN_FOR_SPECS if issubclass(cls, Spec) else WRITTEN
        for name, value in sorted(vars(cls).items()):
            if name not in left_out and not isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType)):
                self.add(name, value)
        factories = getattr(cls, "__dataclass_fields__", {})
        for name in sorted(factories):
            if callable(factory := factories[name].default_factory):
                self.add(name, factory)

    def _add_function(self, function: types.FunctionType) -> None:
        if is_installed(function.__globals__.get("__name__", ""), self._own):
            if is_imported(function, self._own):
                self._tell("imported", *with_version(function.__module__), function.__qualname__)
                return
            # One that an installed function has made, perhaps of a function of the user's, as jax.vmap does.
            self._tell("made", *with_version(function.__globals__["__name__"]), function.__code__.co_qualname)
        else:
            self._add_code(function.__code__)
            self._add_globals(function)
        self._add((function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.add(name, cell.cell_contents)
            except ValueError:  # of a name that has no value yet
                self._tell("empty")

    def _add_code(self, code: types.CodeType) -> None:
        """What it does, without the places and names that do not matter."""
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        counts = code.co_argcount, code.co_posonlyargcount
        self._tell("code", *counts, code.co_flags & FLAGS, arguments, code.co_exceptiontable)
        for instruction in dis.get_instructions(code):
            self._tell(instruction.opname)
            if instruction.opname == "KW_NAMES":  # whose meaning `dis` does not know by itself
                self._tell(code.co_consts[instruction.arg or 0])
            elif "FAST" not in instruction.opname and "DEREF" not in instruction.opname:
                self._add(instruction.argval)
            else:
                self._tell(instruction.arg)

    def _add_globals(self, function: types.FunctionType) -> None:
        code, known = function.__code__, function.__globals__
        names = _names(code)
        for name in sorted(_names(code, "LOAD_GLOBAL", "LOAD_NAME") & known.keys()):
            self._add_with_attributes(name, known[name], names)
        for name in sorted(_names(code, "IMPORT_NAME") & sys.modules.keys()):
            self._add_with_attributes(name, sys.modules[name], names)

    def _add_with_attributes(self, name: str, value: Any, names: set[str]) -> None:
        """A global; of a module of the user's own, what the names that stand beside it may mean there."""
        self.add(name, value)
        if not isinstance(value, types.ModuleType) or is_installed_module(value, self._own) or self._is_told(value):
            return
        for attribute in sorted(names & vars(value).keys()):
            self._path.append(name)
            self._add_with_attributes(attribute, vars(value)[attribute], names)
            self._path.pop()
        del self._seen[id(value)]  # another function may use others of its names

    def _add_reduced(self, value: Any) -> None:
        """Any other object: what it could be made of again, or else nothing."""
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType) and type(value).__name__ in WRAPPERS:
            self._add(wrapped)
            return
        parts = value.__reduce_ex__(4)
        self._tell("object")
        self._add(type(value))
        for part in (parts,) if isinstance(parts, str) else parts:
            if type(part) is dict and all(isinstance(name, str) for name in part):
                part = dict(sorted(part.items()))
            self._add(list(part) if isinstance(part, Iterator) else part)

    def _leave(self, value: Any) -> None:
        self._tell("unknown")
        kind = type(value)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        said = f"{'.'.join(self._path)} (a {name})"
        if said not in self.unknown:
            self.unknown.append(said)

    def _add_set(self, values: Any) -> None:
        """Its values by their own digests, since its order differs from process to process."""
        if id(values) in self._sets:
            self._tell("set again")
            return
        digests = []
        for value in values:
            walk = _Walk(self._own)
            walk._path, walk.unknown, walk._sets = self._path, self.unknown, {*self._sets, id(values)}
            walk._add(value)
            digests.append(walk.digest.hexdigest())
        self._tell("set", len(digests), *sorted(digests))


def _names(code: types.CodeType, *instructions: str) -> set[str]:
    """Names that such instructions of some code, and of that within it, are about; all names without any."""
    within = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    own = {each.argval for each in dis.get_instructions(code) if each.opname in instructions}
    return (own if instructions else set(code.co_names)).union(*(_names(part, *instructions) for part in within))
