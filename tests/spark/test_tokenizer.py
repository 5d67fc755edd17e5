"""Texts become the ids that the package tokenizers gives them, on every worker, and what is saved comes back."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType

from sparkdl import DeepModel, Network, register_function
from sparkdl.layers import Dense, EmbeddingBag
from sparkdl.scoring.saved_stage import params_digest
from sparkdl.spark.tasks import tokenizing
from sparkdl.subwords.recipe import KINDS, Recipe
from sparkdl.text import Detokenizer, Tokenizer, TokenizerModel

tokenizers = pytest.importorskip("tokenizers")

TEXTS = [
    "The tokenizer tokenizes tokens, and tokens are pieces of words.",
    None,
    "",
    "Ærøskøbing's wörds: naïve café, Straße, straße!",
    "日本語のテキスト 🙂🙂 and\n\ttabs",
    "the theme of these thermal threads: there, then, thence " * 30,
    " ",
]


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    """TEXTS, by `id`, in the column `text`."""
    return spark.createDataFrame(list(enumerate(TEXTS)), "id int, text string").repartition(2, "id").cache()


@pytest.fixture(scope="module")
def models(texts: DataFrame) -> dict[str, TokenizerModel]:
    """A model of each kind."""
    return {kind: tokenizer(kind).fit(texts) for kind in KINDS}


def tokenizer(kind: str = "wordpiece", **params: Any) -> Tokenizer:
    return Tokenizer(**({"inputCol": "text", "outputCol": "tokens", "kind": kind, "vocabSize": 300} | params))


def column(frame: DataFrame, name: str = "tokens") -> list[Any]:
    """By row, in the order of `id`."""
    return [row[0] for row in frame.orderBy("id").select(name).collect()]


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_package(models: dict[str, TokenizerModel], texts: DataFrame, kind: str) -> None:
    own = tokenizers.Tokenizer.from_str(models[kind].tokenizerJson)
    expected = [None if text is None else own.encode(text).ids for text in TEXTS]
    assert expected[2] == [] and max(map(len, filter(None, expected))) > 100
    made = models[kind].transform(texts)
    assert column(made) == expected
    assert made.schema["tokens"].dataType == ArrayType(IntegerType(), False)
    assert [None if text is None else models[kind].encode(text) for text in TEXTS] == expected


def test_neither_partitions_nor_order_have_a_part_in_it(
    models: dict[str, TokenizerModel], texts: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tokenizer().fit(texts.orderBy(F.desc("id")).coalesce(1))
    assert other.tokenizerJson == models["wordpiece"].tokenizerJson
    recipe = tokenizer()._recipe()
    monkeypatch.setattr(tokenizing, "COUNTED_WORDS", 5)
    batches = [pa.RecordBatch.from_pydict({"text": TEXTS[:4]}), pa.RecordBatch.from_pydict({"text": TEXTS[4:]})]
    parts = list(tokenizing.count_words(iter(batches), recipe))
    total: Counter[str] = Counter()
    for part in parts:
        for row in part.to_pylist():
            total[row["word"]] += row["count"]
    assert len(parts) > 2
    assert total == Counter(word for text in TEXTS if text for word in recipe.splitter()(text))


def test_params_of_length_and_marks_act(texts: DataFrame, models: dict[str, TokenizerModel]) -> None:
    fitted = tokenizer(padToken="[PAD]", startToken="[CLS]", endToken="[SEP]", maxLength=9, specialTokens=["<url>"])
    model = fitted.fit(texts)
    names = list(model.getVocabulary())
    assert names[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<url>"]
    own = list(models["wordpiece"].getVocabulary())
    known = column(models["wordpiece"].transform(texts))
    plain = [None if ids is None else [names.index(own[each]) for each in ids] for ids in known]
    rows = column(model.transform(texts))
    assert rows == [None if ids is None else (cut := [2, *ids[:7], 3]) + [0] * (9 - len(cut)) for ids in plain]
    longer = column(model.copy().setMaxLength(None).setPadToken(None).transform(texts))
    assert longer == [None if ids is None else [2, *ids, 3] for ids in plain]
    assert model.encode("<url>") == [2, 4, 3, *[0] * 6]
    assert model.vocabularySize == len(names) == max(model.getVocabulary().values()) + 1


def test_long_columns_are_taken_in_parts(models: dict[str, TokenizerModel], monkeypatch: pytest.MonkeyPatch) -> None:
    model = models["bpe"]
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "")
    monkeypatch.delenv("TOKENIZERS_PARALLELISM")

    def ids() -> list[Any]:
        batches = iter([(pa.array(TEXTS),), (pa.array([], pa.string()),), (pa.array([None, "the"]),)])
        made = list(tokenizing.encoded(batches, model.tokenizerJson.encode, None, None))
        assert [len(part) for part in made] == [len(TEXTS), 0, 2]
        return [part.to_pylist() for part in made]

    whole = ids()
    monkeypatch.setattr(tokenizing, "TEXTS", 2)
    monkeypatch.setattr(tokenizing, "CHARACTERS", 70)
    assert ids() == whole
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false", "the package would warn of forks"


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_back(models: dict[str, TokenizerModel], texts: DataFrame, kind: str) -> None:
    model = models[kind]
    made = model.detokenizer(outputCol="back").transform(model.transform(texts).withColumn("more", F.col("tokens")))
    back = column(made, "back")
    if kind == "bpe":
        assert back == TEXTS
    else:
        assert back[:3] == TEXTS[:3]
        assert back[4].startswith("日本語のテキスト") == (kind == "unigram")  # a WordPiece a sign, with spaces between
    assert [model.decode(ids) for ids in column(model.transform(texts)) if ids] == [text for text in back if text]


def test_functions_of_sql_give_what_transform_gives(
    spark: SparkSession, models: dict[str, TokenizerModel], texts: DataFrame
) -> None:
    model = models["bpe"].copy().setMaxLength(20)
    texts.createOrReplaceTempView("texts")
    encode = register_function(spark, "encode_text", model)
    decode = register_function(spark, "decode_ids", model.detokenizer())
    expected = column(model.transform(texts))
    found = spark.sql("SELECT id, encode_text(text) AS tokens FROM texts")
    assert found.schema["tokens"].dataType == ArrayType(IntegerType(), False)
    assert column(found) == expected and max(map(len, filter(None, expected))) == 20
    assert column(texts.select("id", encode("text").alias("tokens"))) == expected
    back = column(model.detokenizer(outputCol="back").transform(model.transform(texts)), "back")
    both = spark.sql("SELECT id, decode_ids(encode_text(text)) AS back FROM texts")
    assert column(both, "back") == back
    assert column(found.select("id", decode(F.col("tokens").cast("array<bigint>")).alias("back")), "back") == back
    row = spark.sql("SELECT encode_text(NULL), decode_ids(NULL), decode_ids(array()), encode_text('')").first()
    assert row is not None and row[:] == (None, None, "", [])
    # A network reads what a tokenizer makes, in one query.
    size = model.vocabularySize
    network = Network([EmbeddingBag(size, 2), Dense(1)], input_shape=(None,))
    sums = DeepModel(network.init(0)).setParams(network=network, loss="squared_error", featuresCol="tokens")
    register_function(spark, "sums", sums)
    some = "text IS NOT NULL AND text != ''"
    scored = column(sums.transform(model.transform(texts.where(some))), "prediction")
    assert column(spark.sql(f"SELECT id, sums(encode_text(text)) AS y FROM texts WHERE {some}"), "y") == scored


def test_functions_of_sql_say_what_they_take(spark: SparkSession, models: dict[str, TokenizerModel]) -> None:
    model = models["bpe"]
    register_function(spark, "encode_strictly", model)
    register_function(spark, "decode_strictly", Detokenizer(model.tokenizerJson))
    for call, message in (
        ("encode_strictly('a', 'b')", r"Call it as encode_strictly\(text\), received 2 arguments."),
        ("encode_strictly(5)", r"Call it as encode_strictly\(text\) of a string, received int32; cast it."),
        ("encode_strictly(X'00')", "of a string, received binary; cast it."),
        ("decode_strictly('a')", r"Call it as decode_strictly\(ids\) of an array of whole numbers, received string; "),
        ("decode_strictly(array(0.5D))", "of an array of whole numbers, received list<.*double"),
        ("decode_strictly(array(-1))", "Ids must be of tokens of the vocabulary, .* received -1"),
    ):
        with pytest.raises(PythonException, match=message):
            spark.sql(f"SELECT {call}").collect()
    with pytest.raises(ValueError, match="^output goes with models of networks, but a TokenizerModel has one result, "):
        register_function(spark, "refused", model, output="prediction")
    with pytest.raises(ValueError, match="padToken must be a token of the vocabulary, received 'absent'"):
        register_function(spark, "refused", model.copy().setMaxLength(3).setPadToken("absent"))
    with pytest.raises(ValueError, match="received PipelineModel that ends in TokenizerModel; pass the stage"):
        register_function(spark, "refused", PipelineModel([model]))


def test_ids_of_no_token_are_refused(spark: SparkSession, models: dict[str, TokenizerModel]) -> None:
    model = models["bpe"]
    assert model.decode([]) == ""
    for ids, shown in (([0, 300], "300"), ([-1], "-1"), ([2**40], str(2**40))):
        with pytest.raises(
            ValueError, match=f"which has 300 from 0 on, received {shown}; decode them by the tokenizer"
        ):
            model.decode(ids)
    rows = spark.createDataFrame([([1, None],)], "tokens array<bigint>")
    with pytest.raises(Exception, match="Ids must be of tokens of the vocabulary, .* received None"):
        model.detokenizer().transform(rows).collect()


def test_it_comes_back_in_a_pipeline(texts: DataFrame, tmp_path: Path) -> None:
    stage = tokenizer("unigram", vocabSize=100, maxLength=8, padToken="[PAD]")
    Pipeline(stages=[stage]).save(str(tmp_path / "pipeline"))
    pipeline = Pipeline.load(str(tmp_path / "pipeline"))
    assert pipeline.getStages()[0].extractParamMap() == stage.extractParamMap()
    fitted = pipeline.fit(texts)
    model = fitted.stages[0]
    assert (model.uid, type(model)) == (stage.uid, TokenizerModel)
    back = model.detokenizer(outputCol="back").setSkipSpecialTokens(False)
    PipelineModel([model, back]).save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    assert [type(each) for each in loaded.stages] == [TokenizerModel, Detokenizer]
    assert loaded.stages[0].tokenizerJson == model.tokenizerJson
    assert loaded.stages[0].extractParamMap() == model.extractParamMap()
    assert column(loaded.transform(texts), "back") == column(back.transform(model.transform(texts)), "back")
    (saved,) = (tmp_path / "model").glob("stages/0_*/tokenizer/part-*")
    assert tokenizers.Tokenizer.from_file(str(saved)).to_str() == model.tokenizerJson


def test_damage_is_refused_by_name(models: dict[str, TokenizerModel], tmp_path: Path) -> None:
    path = tmp_path / "saved"
    models["bpe"].save(str(path))
    for checksum in path.rglob(".*.crc"):
        checksum.unlink()
    (file,), (metadata,) = path.glob("tokenizer/part-*"), path.glob("metadata/part-*")
    whole, described = file.read_text(), json.loads(metadata.read_text())

    def refused(content: str, sign: bool) -> str:
        file.write_text(content)
        if sign:
            forged = described | {"textDigest": hashlib.sha256(content.encode()).hexdigest()}
            metadata.write_text(json.dumps(forged | {"paramsDigest": params_digest(forged)}))
        with pytest.raises(ValueError, match=f"^{path} cannot be loaded: ") as raised:
            TokenizerModel.load(str(path))
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "tokenizer is not as it was saved; save the stage again" in refused(whole.replace("Ġ", "G"), sign=False)
    assert "it is no tokenizer.json of the package tokenizers" in refused('{"code": "import os"}', sign=True)
    assert "it is no tokenizer.json of the package tokenizers" in refused(whole[: len(whole) // 2], sign=True)
    file.unlink()
    with pytest.raises(ValueError, match="there should be one file in .*saved/tokenizer, received 0"):
        TokenizerModel.load(str(path))
    with pytest.raises(ValueError, match="holds a .*TokenizerModel, not a .*Detokenizer; load it with that class"):
        Detokenizer.load(str(path))


def test_a_file_of_the_package_is_read(texts: DataFrame, tmp_path: Path) -> None:
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<?>": 5, "tokens": 2, "the": 1}, "<?>"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.enable_padding(pad_id=2, pad_token="tokens")  # of the longest of a batch
    own.save(str(tmp_path / "tokenizer.json"))
    expected = [None if text is None else own.encode(text).ids for text in TEXTS]
    for path in (tmp_path / "tokenizer.json", (tmp_path / "tokenizer.json").as_uri()):
        model = TokenizerModel.from_file(path, inputCol="text", outputCol="tokens")
        assert column(model.transform(texts)) == expected
    assert (model.vocabularySize, list(model.getVocabulary())) == (6, ["the", "tokens", "<?>"])
    assert TokenizerModel.from_file(path, maxLength=3, padToken="the").encode("tokens") == [2, 1, 1]
    with pytest.raises(ValueError, match="padToken must be a token of the vocabulary, received 'The'"):
        TokenizerModel.from_file(path, maxLength=3, padToken="The")
    for absent in (tmp_path / "absent.json", (tmp_path / "absent.json").as_uri()):
        with pytest.raises(FileNotFoundError, match="absent.json"):
            TokenizerModel.from_file(absent)
    (tmp_path / "other.json").write_bytes(b"\xff{}")
    (tmp_path / "none.json").write_text('{"pickle": "cos"}')
    with pytest.raises(ValueError, match="other.json cannot be read: .*utf-8.*"):
        TokenizerModel.from_file(tmp_path / "other.json")
    with pytest.raises(ValueError, match="none.json cannot be read: it is no tokenizer.json of the package tokenizers"):
        TokenizerModel.from_file((tmp_path / "none.json").as_uri())
    with pytest.raises(ValueError, match="tokenizerJson cannot be read: it is no tokenizer.json"):
        TokenizerModel("{}")


def test_a_text_that_the_tokenizer_cannot_take_is_shown(texts: DataFrame) -> None:
    own = tokenizers.Tokenizer(tokenizers.models.WordPiece({"the": 0}, unk_token="[UNK]"))
    model = TokenizerModel(own.to_str()).setParams(inputCol="text", outputCol="tokens")
    assert model.encode("the") == [0]
    with pytest.raises(Exception, match="The tokenizer cannot take the text '.*Missing .UNK. token"):
        model.transform(texts).collect()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inputCol": "id"}, "inputCol 'id' must be string, received int; cast it"),
        ({"inputCol": "absent"}, "inputCol names column 'absent', which is not there; the columns are id, text"),
        ({"inputCol": None}, "inputCol of Tokenizer is not set; pass inputCol='text'"),
        ({"outputCol": "Text"}, "Output column 'Text' exists already as 'text'"),
        ({"vocabSize": 1}, "vocabSize must be at least 2"),
        ({"kind": "bpe", "unknownToken": "?"}, "unknownToken goes with kind='wordpiece' or 'unigram'"),
        ({"kind": "unigram", "minFrequency": 3}, "minFrequency goes with kind='wordpiece' or 'bpe'"),
        ({"padToken": "[PAD]"}, "padToken '.PAD.' fills rows up to maxLength, which is not set"),
        (
            {"maxLength": 2, "startToken": "a", "endToken": "b"},
            "maxLength must be at least 3 with 2 tokens around texts",
        ),
        ({"specialTokens": [""]}, "Special tokens must have a name"),
    ],
)
def test_what_cannot_be_is_said_before_any_job(texts: DataFrame, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenizer(**params).fit(texts)


def test_keywords_are_params(texts: DataFrame) -> None:
    with pytest.raises(TypeError, match="Tokenizer has no Param 'vocabularySize'; did you mean vocabSize?"):
        Tokenizer(vocabularySize=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="kind must be one of wordpiece, bpe, unigram, received 'words'"):
        Tokenizer(kind="words")
    for name, value in {
        "kind": "bpe",
        "vocabSize": 5,
        "lowercase": True,
        "minFrequency": 4,
        "maxLength": 6,
        "padToken": "p",
        "unknownToken": "u",
        "startToken": "s",
        "endToken": "e",
        "specialTokens": ["x"],
        "inputCol": "i",
        "outputCol": "o",
    }.items():
        capital = name[0].upper() + name[1:]
        set_by_setter = getattr(Tokenizer(), f"set{capital}")(value)
        set_by_keyword = Tokenizer(**{name: value})  # type: ignore[misc]
        assert getattr(set_by_setter, f"get{capital}")() == getattr(set_by_keyword, f"get{capital}")() == value
        assert Tokenizer().explainParam(name)
    with pytest.raises(ValueError, match="This TokenizerModel has no tokenizer; take one from fit, load or from_file"):
        TokenizerModel().encode("text")
    with pytest.raises(ValueError, match="fit takes a DataFrame whose rows come to an end, received a stream"):
        tokenizer().fit(texts.sparkSession.readStream.format("rate").load().selectExpr("'a' AS text"))


def test_params_make_a_recipe() -> None:
    made = tokenizer("bpe", lowercase=True, minFrequency=7, endToken="</s>", specialTokens=["<a>", "</s>"])._recipe()
    assert made == Recipe("bpe", 300, True, 7, "", ("</s>", "<a>"), end="</s>")
    made = tokenizer(unknownToken="?", startToken="<s>")._recipe()
    assert made == Recipe("wordpiece", 300, False, 2, "?", ("?", "<s>"), start="<s>")


def test_a_stream_gives_what_transform_gives(
    models: dict[str, TokenizerModel], texts: DataFrame, tmp_path: Path
) -> None:
    texts.write.parquet(str(tmp_path / "texts"))
    stream = texts.sparkSession.readStream.schema(texts.schema).parquet(str(tmp_path / "texts"))
    sink = models["bpe"].transform(stream).writeStream.format("memory").queryName("tokenized")
    query = sink.option("checkpointLocation", str(tmp_path / "stream")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert column(texts.sparkSession.table("tokenized")) == column(models["bpe"].transform(texts))
