"""Hook of mkdocs: adds the pages that are made from other files and from the command line, and fixes links out of docs/.

README.md becomes the start page; CHANGELOG.md and SECURITY.md become pages; each command gets a page with its options.
Links that work on GitHub work on the site: those to files outside docs/ lead to the repository.
"""

from __future__ import annotations

import posixpath
import re
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genpr.cli.main import cli

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SOURCES = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_BADGES = re.compile(r"^\[!\[.*\n", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the navigation entry of the commands."""
    (entry,) = (each for each in config.nav or [] if isinstance(each, dict) and "Commands" in each)
    entry["Commands"] = ["cli.md", *({f"genpr {name}": f"commands/{name}.md"} for name in command_names())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    pages = {page: (ROOT / source).read_text() for page, source in SOURCES.items()}
    pages["index.md"] = "---\nhide: [navigation]\n---\n\n" + home(
        pages["index.md"], config.site_url or "", config.repo_url or ""
    )
    pages |= {f"commands/{name}.md": command_page(name) for name in command_names()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Point relative links at pages of the site, or at the repository for files that the site does not hold."""
    path = page.file.src_uri
    return relinked(markdown, SOURCES.get(path, f"docs/{path}"), path, config.repo_url or "")


def relinked(markdown: str, source: str, page: str, repository: str) -> str:
    """The text of the file `source` with links as they must be in `page`; both are paths with /."""
    pages = {file: name for name, file in SOURCES.items()}

    def target(match: re.Match[str]) -> str:
        found = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        if found in pages:
            found = f"docs/{pages[found]}"
        if not found.startswith("docs/"):
            kind = "blob" if (ROOT / found).is_file() else "tree"
            return f"{repository}/{kind}/main/{found}"
        return posixpath.relpath(found.removeprefix("docs/"), posixpath.dirname(page) or ".")

    return _LINK.sub(target, markdown)


def home(readme: str, site: str, repository: str) -> str:
    """README.md without badges, with links to the site and pictures of the repository made local."""

    def target(match: re.Match[str]) -> str:
        page = match[1]
        name = f"{page}/index.md" if page == "api" else f"{page}.md"
        return f"](docs/{name}{match[2] or ''})"

    text = re.sub(rf"\]\({re.escape(site)}([\w/-]+)/(#[\w-]+)?\)", target, _BADGES.sub("", readme))
    raw = repository.replace("github.com", "raw.githubusercontent.com")
    return text.replace(f"]({site})", "](docs/index.md)").replace(f"{raw}/main/", "")


def command_names() -> list[str]:
    """The subcommands of genpr, in the order of its help."""
    return cli.list_commands(click.Context(cli))


def command_page(name: str) -> str:
    """One command: its help, usage and options, and those of its subcommands."""
    command = _command(name)
    return f"# genpr {name}\n\n{_described(command, f'genpr {name}', 2)}"


def _described(command: click.Command, path: str, level: int) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [_text(command.help), f"```text\n{usage}\n```"]
    records = filter(None, (each.get_help_record(context) for each in command.get_params(context)))
    options = [f"`{' '.join(names.split())}`\n:   {_one_line(text)}" for names, text in records if text]
    if options:
        parts += [f"{'#' * level} Options", *options]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                parts.append(f"{'#' * level} {path} {name}")
                parts.append(_described(child, f"{path} {name}", level + 1))
    return "\n\n".join(parts)


def _text(help_text: str | None) -> str:
    """Help of click as Markdown: paragraphs after a line with a backspace are kept as they are."""
    paragraphs = (help_text or "").split("\n\n")
    kept = [
        f"```text\n{each.removeprefix(chr(8)).strip(chr(10))}\n```"
        if each.startswith("\b")
        else _one_line(each)
        for each in paragraphs
    ]
    return "\n\n".join(kept)


def _command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    if command is None:
        raise ValueError(f"unknown command: {name}")
    return command


def _one_line(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    """Plain text as Markdown, in which only `code` has a meaning."""
    parts = text.split("`")
    plain = (re.sub(r"([\\*_\[])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2])
    code = [f"`{part}`" for part in parts[1::2]]
    return "".join(part for both in zip_longest(plain, code, fillvalue="") for part in both)
