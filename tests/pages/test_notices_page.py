"""docs/notices.md lists every notice with its level."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notices.md").read_text()
SOURCE = (ROOT / "genpr" / "notices.py").read_text()


def test_every_notice_is_in_one_table_with_its_level():
    listed = re.findall(r"^\| `([\w-]+)` \| (note|warning) \|", PAGE, re.MULTILINE)
    defined = re.findall(r"^([\w-]+) (note|warning)$", SOURCE, re.MULTILINE)
    assert len(defined) > 50
    assert sorted(listed) == sorted(defined)
