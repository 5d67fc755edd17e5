"""Arrays and Vectors sent as the bytes in which Spark holds them: Arrow takes numbers one by one, and bytes as a whole.

Spark SQL has no function for it. These are expressions of Catalyst, which need a driver with a JVM of its own.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, FloatType, IntegralType

from sparkdl.spark.driver.remote import identity, over_connect, setting

LOGGER = logging.getLogger("sparkdl.catalyst")
SETTING = "sparkdl.catalystBytes"  # of the session: false never sends bytes, true does with any version of Spark
TESTED = ("4.1", "4.3")  # versions of Spark whose bytes the tests have compared with the values
PACKAGE = "org.apache.spark.sql.catalyst.expressions"
FIXED = BooleanType, IntegralType, FloatType, DoubleType  # of a fixed number of bytes


def pack_column(session: SparkSession, column: Column, plain: Column, kind: DataType) -> Column:
    """Of arrays and Vectors a struct of `bytes` and of what is sent otherwise, `plain`; else that alone.

    A row has either, the other being empty: there are no bytes of null, nor of what Spark has just computed and not yet
    put into a row.

    Parameters
    ----------
    session : SparkSession
    column : Column
    plain : Column
        What is sent of it otherwise: the same arrays, or the structs of Vectors.
    kind : DataType
        Of `column`.

    Raises
    ------
    ValueError
        `SETTING` is neither true nor false.
    """
    vector, array = isinstance(kind, VectorUDT), isinstance(kind, ArrayType) and isinstance(kind.elementType, FIXED)
    if not (vector or array) or over_connect(session) or not _wanted(session):
        return plain
    try:
        held, data = _held(session, *((F.unwrap_udt(column), "UnsafeRow") if vector else (column, "UnsafeArrayData")))
    except Exception as error:  # whatever py4j raises where the JVM has other classes, or gives no access to them
        _fall_back(session, " ".join(f"{type(error).__name__}: {error}".split())[:300])
        return plain

    def unless_held(values: Column, kind: str) -> Column:
        return F.when(held, F.expr(f"cast(array() as {kind})")).otherwise(values)

    if vector:
        for name, type_of in (("indices", "array<int>"), ("values", "array<double>")):
            plain = plain.withField(name, unless_held(plain[name], type_of))
    else:
        plain = unless_held(plain, kind.simpleString())
    return F.struct(F.when(held, data).otherwise(F.expr("X''")).alias("bytes"), plain.alias("plain"))


_told: set[str] = set()  # applications whose log has the line


def _wanted(session: SparkSession) -> bool:
    """Whether to send bytes; ValueError if the setting is neither true nor false."""
    told = setting(session, SETTING, "").strip().lower()
    if told not in ("", "true", "false"):
        raise ValueError(f"{SETTING} must be true or false, received {told!r}; set it to one or unset it.")
    if told == "false":
        return False
    if not hasattr(F, "arrow_udf"):  # pandas has no such structs
        return _fall_back(session, f"Spark {session.version} has UDFs of pandas only")
    if not told and not session.version.startswith(tuple(f"{version}." for version in TESTED)):
        versions = " and ".join(TESTED)
        return _fall_back(session, f"tried with Spark {versions}, not {session.version}; {SETTING}=true sends them")
    return True


def _fall_back(session: SparkSession, reason: str) -> bool:
    """False, after a line of the log if it is the application's first."""
    where = identity(session)
    if where not in _told:
        _told.add(where)
        LOGGER.warning("Arrays and Vectors are sent value by value, which is slower, not as bytes: %s.", reason)
    return False


def _held(session: SparkSession, column: Column, unsafe: str) -> tuple[Column, Column]:
    """Whether values are of this class of Catalyst, and their bytes."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = session._jvm  # type: ignore[attr-defined]
    sql, load, to_sequence = jvm.org.apache.spark.sql, jvm.java.lang.Class.forName, jvm.PythonUtils.toSeq
    catalyst, types, convert = sql.catalyst.expressions, sql.types, sql.classic.ExpressionUtils
    objects, kinds, instance_of = catalyst.objects, types.DataTypes, types.ObjectType
    invoke, nothing, flags = objects.Invoke, to_sequence([]), (True, True, True)
    value, java_class, of_unsafe = convert.expression(column._jc), load("java.lang.Class"), load(f"{PACKAGE}.{unsafe}")

    def call(target: Any, method: str, kind: Any, arguments: Any = nothing) -> Any:
        return invoke(target, method, kind, arguments, nothing, *flags)

    literal, itself = catalyst.Literal(of_unsafe, instance_of(java_class)), to_sequence([value])
    cast = call(literal, "cast", instance_of(of_unsafe), itself)
    place = [
        call(cast, "getBaseObject", instance_of(load("java.lang.Object"))),
        call(cast, "getBaseOffset", kinds.LongType),
        call(cast, "getSizeInBytes", kinds.IntegerType),
    ]
    # A string may be made of any part of memory: off the heap it has no base object, and null there is no null row.
    string, of_any = load("org.apache.spark.unsafe.types.UTF8String"), (False, *flags[1:])
    text = objects.StaticInvoke(
        string, kinds.StringType, "fromAddress", to_sequence(place), nothing, *of_any, jvm.scala.Option.empty()
    )
    held = call(literal, "isInstance", kinds.BooleanType, itself)
    return ClassicColumn(convert.column(held)), ClassicColumn(convert.column(text)).cast("binary")
