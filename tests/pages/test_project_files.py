"""Files that other programs read: the citation and the workflow."""

import re
import tomllib
from pathlib import Path

import yaml

import genpr
from genpr.metrics.registry import METRICS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
