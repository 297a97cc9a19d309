"""Help of all commands: groups, short and full; and shell completion."""

import os
import re
import subprocess
import sys

import click
import pytest

from genpr.cli.main import COMMANDS, cli
from genpr.cli.options import HEADINGS

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
                assert "is empty" in err
    for each in ALL[name].params:
        if each.param_type_name == "argument" and not isinstance(each.type, click.Choice):
            code, out, err = genpr(*name.split(), *("a" * (each.nargs < 0)), "", "a", "a")
            assert (code, out) == (2, "")
            assert "is empty" in err


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
    return [*option.opts, *option.secondary_opts]


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_in_the_full_help_once_and_in_its_group(help_of, name):
    command = ALL[name]
    shown = entries(help_of(*name.split(), "--help"))
    options = [each for each in command.params if isinstance(each, click.Option)]
    for option in options:
        heading = HEADINGS[getattr(option, "group", "common")]
        for flag in flags_of(option):
            assert sum(each.count(flag) for each in shown.values()) == 1
            assert flag in shown[heading]
    assert [heading for heading in HEADINGS.values() if heading in shown] == list(shown)


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


def test_help_of_score_shows_groups_and_defaults(help_of):
    shown = entries(text := help_of("score", "--help"))
    assert shown["Options"][:3] == ["--extractor", "--protocol", "--metrics"]
    assert list(shown)[:3] == ["Options", "Inputs", "Features"]
    assert list(shown)[-1] == "Advanced"
    text = " ".join(text.split())
    assert "or leave them out (skip). An error lists all of them. [default: error]" in text
    assert "--intervals / --no-intervals Compute 95 % intervals" in text


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
