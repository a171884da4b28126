"""Eight float32 side by side, as one value inside loops that numba compiles.

Of a long loop a compiler makes vector instructions by itself. Those of a molecule are so short that
most of their time goes into entering and leaving them, and of loops of constant length it makes
none. Arrays are flat; LLVM puts the eight into registers of the machine at hand.
"""

# What numba hands over is untyped.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

LANES = np.uintp(8)

_VECTOR = ir.VectorType(ir.FloatType(), int(LANES))
_FIRST = ir.Constant(ir.VectorType(ir.IntType(32), int(LANES)), [0] * int(LANES))
_ONE_ROUNDING = ("contract",)  # where the machine multiplies and adds in one instruction


class _Lanes(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_Lanes)
class _Vector(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _VECTOR)


_LANES = _Lanes()


def _place(context, builder, kind, x, at):
    data = context.make_array(kind)(context, builder, x).data
    return builder.bitcast(builder.gep(data, [at]), _VECTOR.as_pointer())


@intrinsic
def load(_, x, at):
    """x[at : at + 8]."""

    def code(context, builder, signature, given):
        return builder.load(_place(context, builder, signature.args[0], *given), align=4)

    return _LANES(x, at), code


@intrinsic
def store(_, x, at, lanes):
    """x[at : at + 8] = lanes."""

    def code(context, builder, signature, given):
        *where, value = given
        builder.store(value, _place(context, builder, signature.args[0], *where), align=4)
        return context.get_dummy_value()

    return types.void(x, at, lanes), code


@intrinsic
def spread(_, number):
    """A float32 in all lanes."""

    def code(context, builder, signature, given):
        none = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(none, given[0], ir.IntType(32)(0))
        return builder.shuffle_vector(first, none, _FIRST)

    return _LANES(types.float32), code


@intrinsic
def add(_, a, b):
    """a + b."""

    def code(context, builder, signature, given):
        return builder.fadd(*given)

    return _LANES(a, b), code


@intrinsic
def multiply(_, a, b):
    """a · b."""

    def code(context, builder, signature, given):
        return builder.fmul(*given, flags=_ONE_ROUNDING)

    return _LANES(a, b), code


@intrinsic
def add_product(_, total, a, b):
    """total + a · b."""

    def code(context, builder, signature, given):
        total, a, b = given
        return builder.fadd(total, builder.fmul(a, b, flags=_ONE_ROUNDING), flags=_ONE_ROUNDING)

    return _LANES(total, a, b), code
