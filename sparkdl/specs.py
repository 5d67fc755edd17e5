"""Frozen dataclasses that travel as JSON, so that no description of a network is ever pickled.

Layers, initializers, losses, optimizers, schedules and exchanges are all specs: values that hash, compare equal, print
as they are written, and turn into plain JSON and back.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, Self, TypeGuard

import numpy as np

from sparkdl.synonyms import bare, spec_meant

FORMAT = 1  # of the JSON; a reader refuses what was written in a newer one


# All specs there are, by type name. Not a field of Spec: a class that is sent would take all others along.
registry: dict[str, type[Spec]] = {}


class Named(Mapping[str, Any]):
    """A mapping that hashes, and that is told from one in another order; for a spec that holds names and values.

    JSON has it as a list of [name, value], which the spec that holds it makes a mapping again.

    Parameters
    ----------
    items : mapping, or pairs of name and value

    Raises
    ------
    ValueError
        They are neither, or a name stands twice.
    """

    def __init__(self, items: Any) -> None:
        pairs = [(name, _plain(value)) for name, value in (items.items() if isinstance(items, Mapping) else items)]
        self._items = dict(pairs)
        if len(self._items) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"Names must differ, {next(name for name in names if names.count(name) > 1)!r} is twice.")

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and list(self.items()) == list(other.items())

    def __repr__(self) -> str:
        return repr(self._items)


def _plain(value: Any) -> Any:
    """The hashable, JSON-able form of a field's value: tuples for lists, Python numbers for NumPy's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return value


def _encoded(value: Any, of: str) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, Named):
        return [[name, _encoded(item, of)] for name, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [_encoded(item, of) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise ValueError(
        f"{of} must be a number, a string, another spec, or a tuple of such, for JSON to hold it, "
        f"received {type(value).__name__} {value!r}; make what is none of these of them in a method."
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Spec.from_json(value)
    if isinstance(value, list):
        return tuple(_decoded(item) for item in value)
    return value


def _is_default(spec: Spec, field: Field[Any]) -> bool:
    value = getattr(spec, field.name)
    return type(value) is type(field.default) and value == field.default


@dataclass(frozen=True)
class Spec:
    """Base of every spec. Subclasses are frozen dataclasses whose fields are JSON values, tuples of them, or specs."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__ and "__dataclass_fields__" not in cls.__dict__:  # @dataclass has not run yet
            raise TypeError(
                f"{cls.__qualname__} defines __init__, but JSON, which is how it travels, knows its fields only; "
                "decorate it with @dataclass(frozen=True) and declare each option, as in 'k: float = 1.0'."
            )
        registry[cls.type_name()] = cls
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Spec.__repr__  # type: ignore[method-assign]  # else @dataclass writes one with every default

    def __repr__(self) -> str:
        given = (field.name for field in fields(self) if not _is_default(self, field))
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in given)})"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _plain(getattr(self, field.name))
            if field.type in (bool, "bool") and not isinstance(value, bool):
                raise ValueError(f"{field.name} of {type(self).__name__} must be True or False, received {value!r}.")
            object.__setattr__(self, field.name, value)

    @classmethod
    def is_packaged(cls) -> bool:
        """Whether the class is sparkdl's own."""
        return cls.__module__.partition(".")[0] == "sparkdl"

    @classmethod
    def type_name(cls) -> str:
        """The `type` in JSON: the bare class name for sparkdl's own classes, `module.Class` for anybody else's."""
        return cls.__qualname__ if cls.is_packaged() else f"{cls.__module__}.{cls.__qualname__}"

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON values: `type` and every field that differs from its default.

        Raises
        ------
        ValueError
            A function made the class, and has since made another that JSON would take for it.
        """
        function, local, name = self.type_name().partition(".<locals>.")
        slotted = hasattr(self, "__slots__")  # @dataclass makes a second class for these
        if local and not slotted and registry.get(self.type_name()) is not type(self):
            raise ValueError(
                f"{function}() has made another class {name!r} since that of {self!r}, and JSON, which is how "
                "specs travel, cannot tell the two; make what differs a field of one class."
            )
        result: dict[str, Any] = {"type": self.type_name()}
        for field in fields(self):
            if not _is_default(self, field):
                result[field.name] = _encoded(getattr(self, field.name), f"{field.name} of {type(self).__name__}")
        return result

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Self:
        """The spec that `to_json` described; `data` may also be the JSON text.

        Only classes that are already imported are looked up: reading JSON never imports a module.

        Raises
        ------
        ValueError
            The text is not JSON, the type is unknown or of another kind, or a field is missing, unknown or invalid.
        """
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"{cls.__name__} is read from JSON, but this is not JSON ({error}): {data!r}"
                ) from None
        if not isinstance(data, Mapping) or not isinstance(data.get("type"), str):
            raise ValueError(f"{cls.__name__} in JSON is an object with a 'type', received {data!r}.")
        if data.get("format", FORMAT) > FORMAT:
            raise ValueError(
                f"This {data['type']} is written in format {data['format']}, this sparkdl reads up to {FORMAT}; "
                "upgrade sparkdl."
            )
        found = registry.get(data["type"])
        if found is None:
            raise _unknown(cls, data["type"])
        if not issubclass(found, cls):
            raise ValueError(f"{data['type']} is another kind of spec than {cls.__name__}.")
        arguments = {name: _decoded(value) for name, value in data.items() if name not in ("type", "format")}
        known = [field.name for field in fields(found)]
        strange = sorted(set(arguments) - set(known))
        if strange:
            raise ValueError(
                f"{data['type']} has no field {strange[0]!r} (its fields: {', '.join(known)}); "
                "it may have been written by a newer sparkdl."
            )
        try:
            return found(**arguments)  # type: ignore[return-value]
        except TypeError as error:
            raise ValueError(f"{data['type']} cannot be built from {dict(data)}: {error}") from None

    @classmethod
    def of(cls, value: Any) -> Self:
        """Accept what a user may write for a spec: the object, its name ("he_normal", "adam"), or its JSON.

        Raises
        ------
        ValueError
            Nothing of this kind has that name; the message lists those there are.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{")):
            return cls.from_json(value)
        if isinstance(value, str):
            wanted = value.replace("_", "").lower()
            for name, found in registry.items():
                if (name.lower() == wanted or name == value) and issubclass(found, cls) and not _is_base(found, cls):
                    try:
                        return found()
                    except TypeError as error:
                        raise ValueError(f"{value!r} needs arguments: {error}; write {name}(...).") from None
        raise _unknown(cls, value)


def refuse_stale(cls: type, base: type, function: str, *dependents: str) -> None:
    """Refuse a class that overrides a method and inherits others that were written for the one it replaces.

    What `base` has itself is derived from whatever the class computes, and fits any.

    Raises
    ------
    TypeError
        It does; the message says what to write.
    """
    abstract = getattr(vars(base)[function], "__isabstractmethod__", False)
    writers = {name: next(kind for kind in cls.__mro__ if name in vars(kind)) for name in dependents}
    stale = {
        name: writer
        for name, writer in writers.items()
        if writer is not base
        and (meant := getattr(writer, function)) is not getattr(cls, function)
        and not (abstract and meant is getattr(base, function))
    }
    if stale:
        names, owners = ", ".join(stale), ", ".join(dict.fromkeys(writer.__name__ for writer in stale.values()))
        raise TypeError(
            f"{cls.__qualname__} overrides {function}, but inherits {names} from {owners}, written for another "
            f"{function}; write them too, or have them derived by a line in the class: "
            f"{names} = {', '.join(f'{base.__name__}.{name}' for name in stale)}"
        )


def take_arrays(spec: Spec, *names: str) -> None:
    """Make lists of the fields that were given as NumPy's arrays."""
    for name in names:
        if isinstance(value := getattr(spec, name), np.ndarray):
            object.__setattr__(spec, name, _plain(value.tolist()))


def check_range(spec: Spec, interval: str, *names: str) -> None:
    """Hold fields of a spec to an interval written as in mathematics: "[0, 1)", "(0, inf)".

    None passes where it is the field's default.

    Raises
    ------
    ValueError
        A field is no number or lies outside.
    """
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    for name in names:
        value = getattr(spec, name)
        if value is None and getattr(type(spec), name, 0) is None:
            continue
        number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        at_bound = (value == low and interval[0] == "[") or (value == high and interval[-1] == "]")
        if not number or not (low < value < high or at_bound):
            raise ValueError(
                f"{name} of {type(spec).__name__} must be a number in {interval}, received {value!r}; choose one there."
            )


def check_integers(spec: Spec, least: int, *names: str) -> None:
    """Hold fields of a spec to integers of at least `least`; None passes where it is the field's default.

    Raises
    ------
    ValueError
        A field is no integer, or a smaller one.
    """
    for name in names:
        value, optional = getattr(spec, name), getattr(type(spec), name, 0) is None
        if not is_integer(value, least) and not (optional and value is None):
            words = "a positive integer" if least == 1 else f"an integer of at least {least}"
            words += " or None" if optional else ""
            raise ValueError(f"{name} of {type(spec).__name__} must be {words}, received {value!r}.")


def is_integer(value: Any, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Whether it is an integer, Python's or NumPy's, between these bounds; True and False are none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(least <= value <= most)


def is_number(value: Any, least: float = -math.inf) -> TypeGuard[float]:
    """Whether it is a finite number of Python, of at least `least`; True and False are none."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return real and abs(value) <= sys.float_info.max and value >= least  # which holds of no NaN


def are_bounds(value: Any) -> TypeGuard[tuple[float, float]]:
    """Whether it is a tuple of two finite numbers, of which the first is not the larger one."""
    return isinstance(value, tuple) and len(value) == 2 and all(map(is_number, value)) and value[0] <= value[1]


class MissingClass(ValueError):
    """JSON names a class of a user's own that is not there."""


def _unknown(cls: type[Spec], value: Any) -> ValueError:
    text = str(value)
    if isinstance(value, str) and "." in text:
        return MissingClass(_missing(text))
    names = sorted(
        name
        for name, found in registry.items()
        if issubclass(found, cls) and "." not in name and not _is_base(found, cls)
    )
    meant = spec_meant(text) if isinstance(value, str) else ""
    called = f", which is called {meant!r} here" if any(bare(meant) == name.lower() for name in names) else ""
    remedy = f"choose one of {', '.join(names)}" if names else f"write {cls.__name__}(...)"
    return ValueError(f"{cls.__name__} is expected, received {value!r}{called}; {remedy}.")


def _is_base(found: type[Spec], family: type[Spec]) -> bool:
    """Whether a class of sparkdl's is there to derive others from."""
    return found is family or any(kind.is_packaged() for kind in found.__subclasses__())


def _missing(text: str) -> str:
    """What to say of a class that is not sparkdl's and that JSON names `text`, "module.Class"."""
    module, _, name = text.rpartition(".")
    function, local, _ = text.partition(".<locals>.")
    what = f"The class {name!r}"
    if local:
        return f"{what} is defined within the function {function!r}, which has not run here; call it first."
    if text.startswith("__main__."):
        return f"{what} was defined in a script or notebook (module '__main__'); define it in this one first."
    if module in sys.modules:
        return f"{what} is not defined in module {module!r} as it is imported here; import the one that has it."
    return f"{what} is defined in module {module!r}, which is not imported; import it first."
