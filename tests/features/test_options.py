"""Options: each field of a record is a keyword in Python and an option of the command line."""

import inspect
from dataclasses import fields

import numpy as np
import pytest
from raising import raising

import genpr
from genpr.checkpoints.options import SamplerKeywords, SamplerOptions
from genpr.cli.main import cli
from genpr.conditional.options import AlignKeywords, AlignOptions, EntityOptions
from genpr.errors import UsageError
from genpr.evaluation.options import ModesKeywords, ModesOptions, ScoreKeywords, ScoreOptions
from genpr.features.options import EmbedKeywords, EmbedOptions
from genpr.integrations.callback import CallbackKeywords, CallbackOptions, GenprCallback
from genpr.integrations.torchmetrics import PrecisionRecallDensityCoverage

RECORDS = [
    *((EmbedOptions, EmbedKeywords), (ScoreOptions, ScoreKeywords)),
    *((ModesOptions, ModesKeywords), (AlignOptions, AlignKeywords), (SamplerOptions, SamplerKeywords)),
    (CallbackOptions, CallbackKeywords),
]
FUNCTIONS = [
    *((genpr.score, ScoreOptions, set()), (genpr.Evaluator, ScoreOptions, set())),
    *((genpr.find_modes, ModesOptions, set()), (genpr.align, AlignOptions, set())),
    (genpr.score_entities_in_images, EntityOptions, {"classifier"}),
    *((genpr.truncation_sweep, SamplerOptions, set()), (GenprCallback, CallbackOptions, set())),
]
COMMANDS = [
    ("score", ScoreOptions, {"protocol", "extractor"}),  # which may be repeated
    *((command, ScoreOptions, {"held_out"}) for command in ("rank", "sweep", "watch")),
    *(("modes", ModesOptions, set()), ("align", AlignOptions, set()), ("entities", EntityOptions, set())),
    ("features", EmbedOptions, set()),
]


def keywords_of(typed_dict):
    return {name: hint.__forward_arg__ for name, hint in typed_dict.__annotations__.items()}


@pytest.mark.parametrize(("record", "keywords"), RECORDS, ids=lambda each: each.__name__)
def test_keywords_equal_the_fields_of_their_record(record, keywords):
    assert keywords_of(keywords) == {each.name: each.type for each in fields(record)}


@pytest.mark.parametrize(("function", "record", "without"), FUNCTIONS)
def test_signature_and_docstring_show_every_field(function, record, without):
    shown = inspect.signature(function).parameters
    for each in fields(record):
        if each.name in without:
            continue
        assert shown[each.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[each.name].default is each.default
        assert shown[each.name].annotation == each.type
        assert f"        {each.name}: " in function.__doc__ or f"    {each.name}: " in function.__doc__
    assert "options" not in shown
    assert "**options" not in function.__doc__


@pytest.mark.parametrize(("command", "record", "without"), COMMANDS)
def test_commands_have_every_field(command, record, without):
    shown = {each.name: each for each in cli.get_command(None, command).params}
    for each in fields(record):
        if each.name in without or not each.metadata["in_cli"]:
            continue
        assert shown[each.name].default == each.default
        assert shown[each.name].group == each.metadata["group"]
        assert shown[each.name].help.split(". ")[0] == each.metadata["description"].split(". ")[0]


@pytest.mark.parametrize("function", [genpr.score, genpr.find_modes, genpr.align, genpr.Evaluator])
def test_unknown_keyword_is_a_type_error(function):
    sides = np.zeros((1 if function is genpr.Evaluator else 2, 60, 4))
    with pytest.raises(TypeError, match="'sead'"):
        function(*sides, sead=1)


IMPOSSIBLE = [
    *(("max_images", 0), ("batch_size", 2**31), ("batch_size", 1.5), ("max_pixels", "many"), ("seed", 2**63)),
    *(("on_bad", "ignore"), ("max_bad", 2), ("max_memory", "much")),
    *(("device", "nonsense"), ("ties", "open"), ("seed", True), ("max_images", True)),
    *(("batch_size", None), ("max_bad", None)),
    *((name, value) for name in ("cache", "intervals", "control", "offline") for value in ("no", 1, None)),
]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_invalid_options_are_errors_at_construction(name, value):
    with pytest.raises(UsageError):
        ScoreOptions(**{name: value})


def test_booleans_of_numpy_are_accepted():
    assert not ScoreOptions(intervals=np.False_).intervals


def test_flags_of_functions_are_booleans():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    result = genpr.score(rows, rows + 1, control=False, intervals=False)
    for call in (
        lambda: genpr.Evaluator(rows, control=False).score(rows, cache="no"),
        lambda: genpr.compare({"a": result, "b": result}, force="no"),
        lambda: genpr.rank_checkpoints(None, {}, force="no"),
        lambda: genpr.load_extractor("pixels", offline="no"),
        lambda: genpr.reference_statistics(rows, spatial="no"),
        lambda: CallbackOptions(intervals="no"),
        lambda: PrecisionRecallDensityCoverage(extractor="pixels", normalize="no"),
        lambda: PrecisionRecallDensityCoverage(extractor="pixels", reset_real_features="no"),
    ):
        with raising(UsageError, "bad-option"):
            call()
