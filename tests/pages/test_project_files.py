"""Files that other programs read: the citation, the workflow, the issue forms and the hooks."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import genpr
from genpr.metrics.registry import METRICS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.name != "config.yml")
ARXIV = re.compile(r"\d{4}\.\d{5}")


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def test_citation_has_the_current_version():
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"] == genpr.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["url"] == PROJECT["urls"]["Homepage"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_citation_lists_the_papers_of_all_metrics_of_features():
    references = read("CITATION.cff")["references"]
    for each in references:
        assert {"type", "title", "authors", "year"} <= each.keys()
        assert all(author["family-names"] and author["given-names"] for author in each["authors"])
    cited = ARXIV.findall(" ".join(each.get("url", "") for each in references))
    assert len(cited) == len(set(cited))
    assert set(ARXIV.findall(" ".join(metric.reference for metric in METRICS.values()))) <= set(cited)


def test_workflow_runs_the_ci_script_on_the_oldest_python():
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    (python,) = (
        step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")
    )
    assert PROJECT["requires-python"] == f">={python}"
    assert (ROOT / ".ci/run").stat().st_mode & 0o100


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_complete(path):
    form = read(path)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))
    assert any(field.get("validations", {}).get("required") for field in fields)
    # GitHub takes options as text; YAML reads a bare yes or no as a boolean
    assert all(
        isinstance(option, str) for field in fields for option in field["attributes"].get("options", [])
    )


def test_hooks_call_the_tools_of_scripts_check():
    hooks = [
        hook
        for repo in read(".pre-commit-config.yaml")["repos"]
        if repo["repo"] == "local"
        for hook in repo["hooks"]
    ]
    called = {hook["entry"].split(" --")[0] for hook in hooks}
    lines = (ROOT / "scripts/check").read_text().splitlines()
    assert called == {
        re.sub(r"( --\S+)*( \.)?$", "", line) for line in lines if re.match(r"(ruff|mypy)", line)
    }


def test_contact_links_are_of_the_project():
    links = {link["url"] for link in read(".github/ISSUE_TEMPLATE/config.yml")["contact_links"]}
    assert all(url.startswith((PROJECT["urls"]["Homepage"], PROJECT["urls"]["Source"])) for url in links)
