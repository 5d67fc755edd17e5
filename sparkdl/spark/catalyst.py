"""Arrays and Vectors sent as the bytes in which Spark holds them: Arrow takes numbers one by one, and bytes as a whole.

Spark SQL has no function for it. These are expressions of Catalyst, which need a driver with a JVM of its own.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, FloatType, IntegralType

from sparkdl.spark.remote import over_connect

EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
FIXED = BooleanType, IntegralType, FloatType, DoubleType  # of a fixed number of bytes


def packed(session: SparkSession, column: Column, plain: Column, kind: DataType) -> Column:
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
    """
    vector, array = isinstance(kind, VectorUDT), isinstance(kind, ArrayType) and isinstance(kind.elementType, FIXED)
    if not (vector or array) or over_connect(session) or not hasattr(F, "arrow_udf"):
        return plain
    try:
        held, data = _held(session, *((F.unwrap_udt(column), "UnsafeRow") if vector else (column, "UnsafeArrayData")))
    except (Py4JError, TypeError):  # a JVM whose classes are others, or to which no access is given
        return plain

    def unless_held(array: Column, kind: str) -> Column:
        return F.when(held, F.expr(f"cast(array() as {kind})")).otherwise(array)

    if vector:
        for name, kind_of in (("indices", "array<int>"), ("values", "array<double>")):
            plain = plain.withField(name, unless_held(plain[name], kind_of))
    else:
        plain = unless_held(plain, kind.simpleString())
    return F.struct(F.when(held, data).otherwise(F.expr("X''")).alias("bytes"), plain.alias("plain"))


def _held(session: SparkSession, column: Column, unsafe: str) -> tuple[Column, Column]:
    """Whether values are of this class of Catalyst, and their bytes."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = session._jvm  # type: ignore[attr-defined]
    sql, types = jvm.org.apache.spark.sql, jvm.org.apache.spark.sql.types.DataTypes
    objects, convert = sql.catalyst.expressions.objects, sql.classic.ExpressionUtils
    load = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass

    def sequence(*values: Any) -> Any:
        return jvm.PythonUtils.toSeq([*values])

    def instance_of(name: str) -> Any:
        return sql.types.ObjectType(load(name))

    def call(target: Any, method: str, kind: Any, *arguments: Any) -> Any:
        return objects.Invoke(target, method, kind, sequence(*arguments), sequence(), True, True, True)

    value, name = convert.expression(column._jc), f"{EXPRESSIONS}.{unsafe}"
    of_class = sql.catalyst.expressions.Literal(load(name), instance_of("java.lang.Class"))
    cast = call(of_class, "cast", instance_of(name), value)
    place = (
        call(cast, "getBaseObject", instance_of("java.lang.Object")),
        call(cast, "getBaseOffset", types.LongType),
        call(cast, "getSizeInBytes", types.IntegerType),
    )
    of_string = load("org.apache.spark.unsafe.types.UTF8String")  # which may be made of any part of memory
    flags = True, True, True
    text = objects.StaticInvoke(
        of_string, types.StringType, "fromAddress", sequence(*place), sequence(), *flags, jvm.scala.Option.empty()
    )
    held = call(of_class, "isInstance", types.BooleanType, value)
    return ClassicColumn(convert.column(held)), ClassicColumn(convert.column(text)).cast("binary")
