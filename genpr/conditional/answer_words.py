"""Words of answers: what a word, key or label means, and what all readers of answers share.

The lists are normalized, in English and Chinese. Those that end in PARTS are looked for within a text, as Chinese is written
without spaces; the others are whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from genpr.conditional.vocabulary import normalize_name

MOST_NAMES = 1_000
"""Most items or lines of an answer."""


class AnswerParseError(Exception):
    """An answer cannot be read; `read_entities` turns it into `Unreadable`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def check_count(number: int) -> None:
    """Refuse more items or lines than a list of entities has ("too-long")."""
    if number > MOST_NAMES:
        raise AnswerParseError(
            "too-long", f"it has more than {MOST_NAMES:,} items or lines, too many for a list of entities"
        )


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names that differ in their normalized spelling, in order; empty ones are left out."""
    found: dict[str, str] = {}
    for name in names:
        key = normalize_name(name)
        if key:
            found.setdefault(key, name)
    return tuple(found.values())


def single_list(readings: list[tuple[str, ...]], what: str) -> tuple[str, ...] | None:
    """The one list that all readings agree on; None if there are no readings.

    Raises:
        AnswerParseError: They differ ("several-lists").
    """
    kinds = {frozenset(map(normalize_name, reading)): reading for reading in reversed(readings)}
    if len(kinds) > 1:
        raise AnswerParseError(
            "several-lists",
            f"there are {len(kinds)} different lists {what}, and nothing tells which one is meant",
        )
    return next(iter(kinds.values()), None)


def _set(words: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(words.split(separator))


def _tuple(words: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(words.split(separator))


ENTITY_WORDS = _set("entities entity objects object items item")
ENTITY_PARTS = _tuple("实体 实體 實體 物体 物體 物品 对象 對象 元素 关键词 名称列表 事物")
PRESENCE_KEYS = _set("found present detected visible recognized recognised identified depicted shown list")
PRESENCE_PARTS = _tuple("存在 出现 出現 发现 看到 包含 识别 識別 检测 列表 清单")
INTRO_WORDS = _set(
    "found see shows show contains contain includes include following detected present visible "
    "depicts depicted list identified recognized recognised answer output result here elements things "
    "subjects concepts keywords names tags"
)
INTRO_PARTS = _tuple("如下 包括 有 答案 结果 結果 存在 出现 出現 发现 看到 包含 识别 識別 检测 列表 清单")
# The last ones are about what was requested, not about what was seen.
NOT_WORDS = _set(
    "not no non none without missing absent excluded exclude excluding lacking lacks never unseen "
    "undetected unrelated false wrong incorrect nothing cannot can't couldn't isn't aren't wasn't "
    "weren't don't doesn't didn't unable neither nor hardly unlikely rejected removed omitted ignored "
    "uncertain unsure expected required requested target targets candidate candidates prompt query "
    "reference"
)
# Of items of a list.
DENIALS = _set("no not without except but maybe perhaps possibly neither nor none never missing absent or")
DENIAL_PARTS = _tuple("没有 沒有 不存在 未出现 看不到 不在 可能是 或者")
NOT_PARTS = _tuple("未 没 沒 无 無 不 缺 非 勿 排除 错误 可能")
REMARK_WORDS = _set(
    "explanation explanations reason reasons reasoning note notes comment comments description "
    "descriptions rationale thought thoughts thinking confidence confidences score scores "
    "justification analysis summary bbox bboxes box boxes colors colours"
)
REMARK_PARTS = _tuple("说明 說明 解释 解釋 理由 原因 备注 備註 注释 描述 思考 分析 置信")
NAME_KEYS = _set(
    "name names entity entityname text word object objectname item value title term 名称 名稱 名字 "
    "实体 實體 实体名 实体名称 物体 物體 物品 对象 文本 词 值"
)
CLASS_KEYS = _set("label class category classname 标签 標籤 类别 類別")
PRESENT_KEYS = _set(
    "present found exists exist visible detected ispresent isvisible inimage status 存在 是否存在 "
    "出现 是否出现 可见 检测到"
)
WRAP_KEYS = _set(
    "answer result results output response content text data json final finalanswer value arguments "
    "choices message messages 答案 结果 結果 回答 输出 输出结果 数据"
)
ERROR_KEYS = _set("error errors exception 错误 錯誤 异常")
NONE = _set(
    "none|nothing|no entities|no entity|no objects|no object|none found|nothing found|empty|"
    "no entities found|no objects found|no entities detected|no objects detected|none detected|"
    "none of them|none of the above|no items|no items found|there are none|there are no entities|無|"
    "无|没有|沒有|空|没有实体|无实体|没有任何实体|没有物体|无物体|未发现|未发现实体|没有发现|"
    "没有找到|未找到|未找到实体|没有发现实体|无任何实体|空列表|一个也没有|一个都没有|"
    "no entities are present|no entities were found|no objects are present|no objects were found|"
    "no entities present|no objects present|no entities are visible|no objects are visible|"
    "no entities visible|no objects visible|no entities identified|no objects identified|"
    "no entities were identified|no objects were identified|no entities were detected|"
    "no objects were detected|there are no objects|there are no entities present|"
    "the image contains no entities|the image does not contain any entities|"
    "the image contains no objects|the image does not contain any objects",
    "|",
)
IMAGE_ENDS = _tuple(
    " in the image| in this image| in the picture| in this picture| in the photo| in this photo| in the list",
    "|",
)
YES = _set("yes y true present found visible 1 ✓ ✔ ✅ ☑ 是 是的 有 有的 存在 出现 可见 对 √")
NO = _set(
    "no|n|false|absent|missing|0|✗|✘|❌|☒|×|否|无|没有|不是|不存在|未出现|不可见|不|错|not present|"
    "not found|not visible",
    "|",
)
NO_ANSWERS = _set(
    "yes no ok okay sure true false null nan undefined unknown error timeout n/a na unsure maybe done "
    "hello hi thanks sorry nil tbd todo ... 是 否 好 好的 对 未知 不知道 不确定 错误 超时 抱歉 收到 "
    "可以 string str object list json"
)
CLOSINGS = _tuple(
    "i hope|hope this|let me know|feel free|please let|if you|is there anything|would you like", "|"
)
# Of JSON, with true or false: what they say is no entity.
STATUS_KEYS = _set(
    "success ok status valid done complete completed finished error errors failed truncated cached "
    "match matches matched correct confident certain blurry empty safe nsfw flagged any all"
)
# Without words that objects are called by, such as can and picture.
PROSE_WORDS = _set(
    "i i'm i've we you he she they it's its is are was were be been there there's this that these "
    "those cannot can't could would should shows contains contain has have had do does did see "
    "appears appear seems seem because which who based however please sorry here let me my your retry "
    "failed exceeded error exception traceback timeout"
)
PROSE_PARTS = _tuple("我 你 图中 图片 圖片 画面 这是 这张 那里 可以看到 是一 因为 但是 抱歉 请 无法")
REFUSALS = _tuple(
    "i'm sorry|i am sorry|sorry|i can't|i cannot|i can not|i'm unable|i am unable|i won't|"
    "i'm not able|i am not able|as an ai|as a language model|unfortunately|i don't|i do not|"
    "i apologize|i apologise|my apologies|i'm afraid|抱歉|很抱歉|非常抱歉|对不起|對不起|我无法|"
    "我不能|无法|作为一个|作为ai|不好意思|我看不到",
    "|",
)


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_FIRST = re.compile(r"([^\W\d]+|[✓✔✅☑√✗✘❌☒×])\s*(?:[,.;，。；(（–—-]|$)")
_TICKS = frozenset("✓✔✅☑✗✘❌☒")
_BRACKETS = re.compile(r"[(（]([^()（）]+)[)）]$")
_MORE = re.compile(
    r"(?:(?:^|\s)(?:etc\b|et cetera|(?:and|&)\s(?:so on|so forth|others|(?:many\s)?more|(?:many\s)?other\s\w+)|"
    r"among\sother(?:s|\sthings))|^(?:so on|others|more|many more)|等等)[\s.…。]*$|^[.…]+$",
    re.IGNORECASE,
)
_GAP = re.compile(r"[\s()（）,;:]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def normalize_key(key: str) -> str:
    """A key without case, spaces, hyphens and underscores."""
    return normalize_name(key).replace(" ", "").replace("_", "").replace("-", "")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(normalize_name(_CAMEL.sub(" ", text[:400])).replace("_", " ")))


def is_negative(text: str) -> bool:
    """Whether a key or label is of what is not there, or is not sure."""
    return bool(_words(text) & NOT_WORDS) or any(part in text for part in NOT_PARTS)


def is_remark(text: str) -> bool:
    """Whether a key or label is of explanations."""
    return bool(_words(text) & REMARK_WORDS) or any(part in text for part in REMARK_PARTS)


def rank_of_key(key: str) -> int | None:
    """How surely the list of entities stands under a key of JSON: 0 `found_entities`, 1 `entities`, 2 `found`; None not."""
    if is_negative(key) or is_remark(key):
        return None
    words = _words(key)
    is_entity = bool(words & ENTITY_WORDS) or any(part in key for part in ENTITY_PARTS)
    is_presence = bool(words & PRESENCE_KEYS) or any(part in key for part in PRESENCE_PARTS)
    if is_entity:
        return 0 if is_presence else 1
    return 2 if is_presence and len(words) <= 2 else None


def is_list_heading(label: str) -> bool:
    """Whether what stands behind a label in plain text is the list of entities."""
    if is_negative(label) or is_remark(label):
        return False
    words = _words(label)
    found = words & (ENTITY_WORDS | INTRO_WORDS)
    return bool(found) or any(part in label for part in (*ENTITY_PARTS, *INTRO_PARTS))


def is_none(text: str) -> bool:
    """Whether a text says that there are no entities."""
    words = normalize_name(text)
    return words in NONE or next(
        (words.removesuffix(end) in NONE for end in IMAGE_ENDS if words.endswith(end)), False
    )


def yes_or_no(value: object) -> bool | None:
    """What a mark of presence says; None where it is no such mark."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    word = normalize_name(value) or value.strip()
    return True if word in YES else False if word in NO else None


def is_yes_or_no(name: str) -> bool:
    """Whether an item of a list answers a question; an object may be called present."""
    return normalize_name(name) in ("yes", "no", "true", "false", "是", "否", "有", "没有")


def is_negation(name: str) -> bool:
    """Whether an item of a list says that something is not there, or is not sure."""
    words = _GAP.split(normalize_name(name))  # forget-me-not is one
    return any(word in DENIALS for word in words) or any(part in name for part in DENIAL_PARTS)


def begins_with_yes_or_no(text: str) -> bool | None:
    """What a remark such as `no, it is hidden` says first; None where it says something else."""
    first = _FIRST.match(text.strip())
    return yes_or_no(text) if first is None else yes_or_no(first[1])


def mark_at_end(name: str) -> tuple[str, bool | None, str]:
    """A name without the mark or the brackets behind it, what these say, and what else stands in the brackets.

    Example:
        >>> mark_at_end("cat ✓"), mark_at_end("dog (no)"), mark_at_end("bird (left)")
        (('cat', True, ''), ('dog', False, ''), ('bird (left)', None, 'left'))
    """
    if name[-1:] in _TICKS:
        return name[:-1].rstrip(), yes_or_no(name[-1]), ""
    if (bracket := _BRACKETS.search(name)) is None:
        return name, None, ""
    said = begins_with_yes_or_no(bracket[1])
    return (name, None, bracket[1]) if said is None else (name[: bracket.start()].rstrip(), said, "")


def brackets_at_end(name: str) -> tuple[str, str]:
    """A name without the brackets behind it, and what stands in them; nothing where there are none."""
    bracket = _BRACKETS.search(name)
    return (name, "") if bracket is None else (name[: bracket.start()].rstrip(), bracket[1])


def without_etc(names: list[str]) -> list[str]:
    """Names without the words at their end that say that there are more, such as "etc."."""
    if not names or (more := _MORE.search(names[-1])) is None:
        return names
    last = names[-1][: more.start()].rstrip()
    return [*names[:-1], last] if last else names[:-1]


def is_closing(text: str) -> bool:
    """Whether a text ends a conversation, such as "I hope this helps"."""
    return normalize_name(text[:80]).startswith(CLOSINGS)


def is_refusal(text: str) -> bool:
    """Whether a text begins as models do that refuse."""
    return normalize_name(text[:80]).startswith(REFUSALS)


def is_no_answer(text: str) -> bool:
    """Whether a single word is a mark of trouble, or an answer to another question."""
    return (normalize_name(text) or text.strip()) in NO_ANSWERS


def is_prose(text: str) -> bool:
    """Whether a piece of text is a sentence, or a part of one, and no name."""
    name = normalize_name(text)
    words = name.split()
    is_long = len(words) > 8 or len(name) > 80 or (len(words) == 1 and len(name) > 30)
    is_sentence = any(word in PROSE_WORDS for word in words) or any(part in name for part in PROSE_PARTS)
    return is_long or is_sentence or any(mark in name for mark in (". ", "! ", "? ", "。", "！", "？", "://"))
