"""The documentation site is built without warnings, its links are valid, and it matches the code."""

import re
from dataclasses import fields
from pathlib import Path

import check_docs
import click
import docs_pages
import markdown
import pytest

import genpr
from genpr.cli.main import cli
from genpr.evaluation.options import ScoreOptions

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, and the output of the build."""
    folder = tmp_path_factory.mktemp("site")
    built = check_docs.build(folder)
    return folder, built.returncode, built.stdout + built.stderr


def text_of(page):
    """The text of a page of the site, without tags, in which white space is one blank."""
    inside = page.read_text().partition("<article")[2].partition("</article>")[0]
    plain = re.sub(r"<[^>]+>", "", inside)
    for entity, character in {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&"}.items():
        plain = plain.replace(entity, character)
    return " ".join(plain.split())


def test_site_is_built_without_warnings(site):
    assert site[1] == 0, site[2]
    assert "WARNING" not in site[2]


def test_links_are_valid_and_no_resources_are_foreign(site):
    assert list(check_docs.problems(site[0], check_docs.SITE)) == []


@pytest.mark.parametrize("name", docs_pages.command_names())
def test_every_option_is_on_the_page_of_its_command(site, name):
    shown = text_of(site[0] / "commands" / name / "index.html")
    context = click.Context(cli)
    commands = [cli.get_command(context, name)]
    while commands:
        command = commands.pop()
        if isinstance(command, click.Group):
            commands += command.commands.values()
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is not None and record[1]:
                assert " ".join(record[0].split()) in shown
                assert " ".join(record[1].replace("`", "").split()) in shown


def test_every_public_name_has_one_entry():
    named = re.findall(
        r"^::: (\S+)$", "".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md")), re.MULTILINE
    )
    assert len(named) == len(set(named))
    assert {f"genpr.{name}" for name in genpr.__all__ if name != "__version__"} <= set(named)


def test_options_of_a_record_are_parameters_with_their_descriptions(site):
    shown = text_of(site[0] / "api/score/index.html")
    assert 'protocol="genpr"' in shown
    descriptions = {each.name: each.metadata["description"] for each in fields(ScoreOptions)}
    assert " ".join(descriptions["max_images"].split()) in shown


def test_readme_has_no_relative_links():
    page = check_docs.Page(markdown.markdown(README, extensions=["tables", "fenced_code"]))
    addresses = [*page.links, *page.loaded]
    assert len(addresses) > 10
    assert [each for each in addresses if not each.startswith(("https://", "#"))] == []


def test_links_of_the_readme_are_valid(site):
    for address in re.findall(r"\]\((https://[^)\s]+)\)", README):
        address, _, anchor = address.partition("#")
        if address.startswith(check_docs.SITE):
            page = site[0] / address.removeprefix(check_docs.SITE) / "index.html"
            assert page.is_file(), address
            assert not anchor or f'id="{anchor}"' in page.read_text(), anchor
        for kind in ("blob", "tree", "raw"):
            inside = re.match(
                rf"https://(?:raw\.githubusercontent|github)\.com/genpr/genpr/(?:{kind}/)?main/(.+)", address
            )
            if inside:
                assert (ROOT / inside[1]).exists(), address


def test_broken_links_and_foreign_resources_are_found(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there/index.html").write_text("<h1 id='top'>x</h1>")
    links = ["there/#top", "there/#none", "gone/", "there", "/genpr/there/", "/genpr/gone/", "https://x.y/z"]
    links += [f"{check_docs.REPOSITORY}/blob/main/README.md", f"{check_docs.REPOSITORY}/blob/main/gone.py"]
    page = "".join(f"<a href='{link}'>x</a>" for link in links)
    page += "<script src='https://cdn.x/a.js'></script><link rel='canonical' href='https://x.y/'>"
    (tmp_path / "index.html").write_text(page)
    found = list(check_docs.problems(tmp_path, "https://genpr.github.io/genpr/"))
    assert len(found) == 5
    for name in ("#none", "gone/ ", "/genpr/gone/", "gone.py", "cdn.x"):
        assert any(name in line for line in found), name


def test_every_notice_is_in_one_table_with_its_level():
    page, source = (ROOT / "docs/notices.md").read_text(), (ROOT / "genpr/notices.py").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| (note|warning) \|", page, re.MULTILINE)
    defined = re.findall(r"^([\w-]+) (note|warning)$", source, re.MULTILINE)
    assert len(defined) > 50
    assert sorted(listed) == sorted(defined)
