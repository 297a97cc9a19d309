"""Help of all commands: groups, short and full; and shell completion."""

import os
import re
import subprocess
import sys

import click
import pytest

from genpr.cli.grouped import HEADINGS
from genpr.cli.main import COMMANDS, cli

HEAVY = ("torch", "PIL", "scipy", "faiss", "rich", "matplotlib")


def commands():
    """Every command that does something, by its words."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_empty_values_are_errors(genpr, name):
    context = click.Context(ALL[name])
    options = [each for each in ALL[name].get_params(context) if not getattr(each, "is_flag", True)]
    for each in options:
        if each.name != "prefix":
            for words in ((each.opts[0], ""), (f"{each.opts[-1]}=",)):
                code, out, err = genpr(*name.split(), *words)
                assert (code, out) == (2, "")
                assert each.opts[0] in err
    for each in ALL[name].params:
        if each.param_type_name == "argument" and not isinstance(each.type, click.Choice):
            code, out, err = genpr(*name.split(), *("a" * (each.nargs < 0)), "", "a", "a")
            assert (code, out) == (2, "")
            assert "it is empty" in err


@pytest.fixture
def help_of(genpr, monkeypatch):
    def call(*words, columns=100):
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = genpr(*words)
        assert (code, err) == (0, "")
        return out

    return call


def entries(text):
    """The flags of each entry in a help text, by heading."""
    found, heading = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]*:", line):
            heading = line[:-1]
        elif heading is not None and re.match(r"  -", line):
            flags = re.split(r"  +", line.strip())[0]
            found.setdefault(heading, []).extend(re.findall(r"(?<![\w-])--?[\w\[\]-]+", flags))
    return found


def flags_of(option):
    if any(flag.startswith("--no-") for flag in option.secondary_opts):
        return [f"--[no-]{option.opts[0][2:]}"]
    return [*option.opts, *option.secondary_opts]


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_in_the_full_help_once_and_in_its_group(help_of, name):
    command = ALL[name]
    has_more = "--help-all" in {flag for each in command.params for flag in each.opts}
    short, full = (
        entries(help_of(*name.split(), flag)) for flag in ("--help", "--help-all" if has_more else "--help")
    )
    options = [each for each in command.params if isinstance(each, click.Option)]
    for option in options:
        heading = HEADINGS[getattr(option, "group", "common")]
        for flag in flags_of(option):
            assert sum(each.count(flag) for each in full.values()) == 1
            assert flag in full[heading]
            assert (flag in short.get(heading, ())) == (heading != "Advanced")
    assert ("Advanced" in full) == has_more
    assert [heading for heading in HEADINGS.values() if heading in full] == list(full)


@pytest.mark.parametrize("name", ALL)
def test_every_option_has_a_help_text_and_a_metavar_in_plain_words(name):
    command = ALL[name]
    assert command.help
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help
            assert option.help.endswith(".")
            assert "?" not in option.help
            metavar = option.make_metavar(click.Context(command))
            assert metavar not in {
                "TEXT",
                "INTEGER",
                "INTEGER RANGE",
                "FLOAT",
                "PATH RANGE",
                "SOURCE RANGE",
            } or (option.is_flag or option.metavar)
    assert "?" not in command.help


@pytest.mark.parametrize("name", ALL)
def test_every_option_that_may_be_repeated_says_so_once(help_of, name):
    repeatable = [each for each in ALL[name].params if isinstance(each, click.Option) and each.multiple]
    for flag in ("--help", *(["--help-all"] if "--help-all" in help_of(*name.split(), "--help") else [])):
        assert " ".join(help_of(*name.split(), flag).split()).count("May be repeated.") == len(repeatable)


def test_same_option_has_the_same_help_everywhere():
    """In its first sentence, but for options whose values differ between commands."""
    differing = {
        *("--extractor", "--protocol", "--metrics", "--k", "--by", "--classifier", "--out", "--n", "--psi"),
        *("--real-labels", "--device"),
    }
    found = {}
    for command in ALL.values():
        for option in command.params:
            if isinstance(option, click.Option) and option.opts[0] not in differing:
                found.setdefault(option.opts[0], set()).add(
                    (option.help.split(". ")[0].rstrip("."), option.metavar, getattr(option, "unset", None))
                )
    assert len(found) > 50
    assert {flag: texts for flag, texts in found.items() if len(texts) > 1} == {}


def test_help_of_score_fits_on_two_screens(help_of):
    text = help_of("score", "--help")
    assert len(text.splitlines()) <= 60
    assert len(help_of("score", "--help", columns=80).splitlines()) <= 75
    shown = entries(text)
    assert list(shown) == ["Options", "Inputs", "Features", "Metrics", "Class labels", "Output"]
    assert shown["Options"][:3] == ["--extractor", "--protocol", "--metrics"]
    assert 8 <= len(shown["Options"]) <= 15
    assert len(help_of("score", "--help-all").splitlines()) > len(text.splitlines())


@pytest.mark.parametrize("columns", [80, 120])
def test_short_help_shows_first_sentences_and_defaults(help_of, columns):
    short, full = (
        " ".join(help_of("score", flag, columns=columns).split()) for flag in ("--help", "--help-all")
    )
    assert "or leave them out (skip). [default: error]" in short
    assert "or leave them out (skip). An error lists all of them. [default: error]" in full
    assert "--[no-]intervals Compute 95 % intervals. [default: on]" in short


def test_commands_are_listed_in_sections(help_of):
    text = help_of("--help")
    headings = [line[:-1] for line in text.splitlines() if re.fullmatch(r"[A-Z][a-z ]*:", line)]
    sections = ["Score and compare", "Training and checkpoints", "Conditional generation", "Tools"]
    assert headings == ["Options", *sections]
    for name in COMMANDS:
        assert len(re.findall(rf"(?m)^  {name}  ", text)) == 1


COMPLETIONS = [
    ("genpr sc", "sc", {"score"}),
    ("genpr score --fail", "--fail", {"--fail-under", "--fail-over"}),
    ("genpr score real fake --ties ", "", {"closed", "strict"}),
    ("genpr score real fake --protocol ad", "ad", {"adm"}),
    (
        "genpr score real fake --metrics precision,symmetric_p",
        "precision,symmetric_p",
        {"precision,symmetric_precision"},
    ),
    ("genpr rank real fake --extractor clip-vit-b", "clip-vit-b", {"clip-vit-b-32"}),
    ("genpr cache pr", "pr", {"prune"}),
]


def completed(line, last, shell="bash"):
    """Completions for `last`, the last word of a line, and the modules that completion imports."""
    position = len(line.split(" ")) - 1
    variables = {"_GENPR_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(position)}
    script = (
        "import sys\n"
        "sys.argv = ['genpr']\n"
        "from genpr.__main__ import main\n"
        "try:\n    main()\n"
        f"finally:\n    print({{*{HEAVY!r}}} & {{*sys.modules}}, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(each.split(",", 1)) for each in done.stdout.splitlines()], done.stderr.strip()


@pytest.mark.parametrize(("line", "last", "expected"), COMPLETIONS)
def test_completion_of_names_needs_no_heavy_imports(line, last, expected):
    offered, heavy = completed(line, last)
    assert expected <= {value for kind, value in offered if kind == "plain"}
    assert all(value.startswith(last) for _, value in offered)
    assert heavy == "set()"


def test_sources_are_completed_as_files():
    for line in (
        "genpr score re",
        "genpr score real fa",
        "genpr score real fake --held-out re",
        "genpr stats re",
    ):
        offered, heavy = completed(line, line.split()[-1])
        assert offered == [("file", line.split()[-1])]
        assert heavy == "set()"
