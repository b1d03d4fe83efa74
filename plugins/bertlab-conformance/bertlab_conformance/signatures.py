"""Whether a class can be called as its contract says, found out before it is."""

import inspect
from collections.abc import Iterator
from inspect import Parameter, Signature

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def broken_signature(plugin: type, base: type) -> str | None:
    """Return what in a class does not fit its contract, or None.

    That is a method which lacks, or which cannot be called with the contract's arguments; and an
    ``__init__`` whose arguments cannot be config keys.
    """
    if inspect.isabstract(plugin):
        missing = ", ".join(sorted(vars(plugin)["__abstractmethods__"]))
        return f"it does not define {missing}, see {base.__module__}.{base.__name__}"
    for name, expected in _methods(base):
        own = getattr(plugin, name)
        # inherited methods fit by themselves
        if own is not getattr(base, name) and not _can_stand_for(own, expected):
            return f"found {name}{_short(own)}, expected {name}{_short(expected)}"
    for parameter in _settings(plugin):
        if parameter.kind not in _NAMED:
            return f"__init__ takes {parameter}; its arguments are config keys, each has a name"
    return None


def _settings(plugin: type) -> list[Parameter]:
    """Return the arguments of ``__init__``; none where it is that of ``nn.Module``."""
    definition = next(each for each in plugin.__mro__ if "__init__" in vars(each))
    # nn.Module.__init__(*args, **kwargs) says nothing of settings
    if definition.__module__.split(".")[0] == "torch":
        return []
    return list(inspect.signature(plugin).parameters.values())


def _methods(base: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods that bertlab's contracts define."""
    for each in base.__mro__:
        if each.__module__.startswith("bertlab."):
            for name, value in vars(each).items():
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield name, value


def _can_stand_for(own: object, expected: object) -> bool:
    """Whether all calls that suit ``expected`` suit ``own``."""
    if not callable(own) or not callable(expected):
        return False
    wanted = list(inspect.signature(expected).parameters.values())
    signature = inspect.signature(own)
    # contract f(self, a, b=1): the core calls f(x) and f(x, b=2). f(self, x, b=2) and
    # f(self, a, *, b=2, c=3) stand for it, f(self, a) and f(self, a, c) do not
    required = [p for p in wanted if p.default is Parameter.empty]
    return _binds(signature, len(required), ()) and _binds(
        signature, len(required), [p.name for p in wanted[len(required) :]]
    )


def _binds(signature: Signature, positional: int, named: "list[str] | tuple[()]") -> bool:
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(named))
    except TypeError:
        return False
    return True


def _short(method: object) -> str:
    """Return the signature of a method without annotations."""
    if not callable(method):
        return f" = {method!r}"
    signature = inspect.signature(method)
    bare = [p.replace(annotation=Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=Signature.empty))
