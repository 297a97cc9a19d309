"""Words in answers of language models: which words, keys and labels mark entities, remarks, negations and refusals.

The lists are in English and Chinese. Words of scripts with spaces match whole words; Chinese ones match parts of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from genpr.conditional.vocabulary import normalize_name

MAX_NAMES = 1_000
"""Most items or lines of an answer."""


class AnswerParseError(Exception):
    """An answer cannot be read; `read_entities` turns it into `Unreadable`."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def check_count(number: int) -> None:
    """Refuse more items or lines than a list of entities has ("too-long")."""
    if number > MAX_NAMES:
        raise AnswerParseError(
            "too-long", f"it has more than {MAX_NAMES:,} items or lines, too many for a list of entities"
        )


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names that differ in their normalized spelling, in order; empty ones are left out."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(normalize_name(name), name)
    return tuple(name for key, name in found.items() if key)


def single_list(readings: list[tuple[str, ...]], what: str) -> tuple[str, ...] | None:
    """The one list that all readings agree on; None if there are no readings.

    Raises:
        AnswerParseError: They differ ("several-lists").
    """
    kinds = {frozenset(map(normalize_name, reading)): reading for reading in reversed(readings)}
    if len(kinds) > 1:
        raise AnswerParseError("several-lists", f"there are {len(kinds)} different lists {what}")
    return next(iter(kinds.values()), None)


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _set(words: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(words.split(separator))


class _Lexicon:
    """Words that mark a text: whole words, and parts of a text in Chinese."""

    def __init__(self, words: str, parts: str = "") -> None:
        self.words, self.parts = frozenset(words.split()), tuple(parts.split())

    def marks(self, text: str) -> bool:
        return bool(_words(text) & self.words) or any(part in text for part in self.parts)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(normalize_name(_CAMEL_CASE.sub(" ", text[:400])).replace("_", " ")))


_ENTITIES = _Lexicon(
    "entities entity objects object items item",
    "实体 實體 物体 物體 物品 对象 對象 元素 关键词 名称列表 事物",
)
_PRESENCE = _Lexicon(
    "found present detected visible recognized recognised identified depicted shown list",
    "存在 出现 出現 发现 看到 包含 识别 識別 检测 列表 清单",
)
_HEADINGS = _Lexicon(
    "found see shows show contains contain includes include following detected present visible depicts depicted list "
    "identified recognized recognised answer output result here elements things subjects concepts keywords names tags",
    "如下 包括 有 答案 结果 結果 存在 出现 出現 发现 看到 包含 识别 識別 检测 列表 清单",
)
# The last ones are about what was requested, not about what was seen.
_NEGATIVE = _Lexicon(
    "not no non none without missing absent excluded exclude excluding lacking lacks never unseen undetected unrelated "
    "false wrong incorrect nothing cannot can't couldn't isn't aren't wasn't weren't don't doesn't didn't unable neither "
    "nor hardly unlikely rejected removed omitted ignored uncertain unsure expected required requested target targets "
    "candidate candidates prompt query reference",
    "未 没 沒 无 無 不 缺 非 勿 排除 错误 可能",
)
_REMARKS = _Lexicon(
    "explanation explanations reason reasons reasoning note notes comment comments description descriptions rationale "
    "thought thoughts thinking confidence confidences score scores justification analysis summary bbox bboxes box boxes "
    "colors colours",
    "说明 說明 解释 解釋 理由 原因 备注 備註 注释 描述 思考 分析 置信",
)
_DENIALS = _Lexicon(
    "no not without except but maybe perhaps possibly neither nor none never missing absent or",
    "没有 沒有 不存在 未出现 看不到 不在 可能是 或者",
)
# Without words that objects are called by, such as can and picture.
_PROSE = _Lexicon(
    "i i'm i've we you he she they it's its is are was were be been there there's this that these those cannot can't could "
    "would should shows contains contain has have had do does did see appears appear seems seem because which who based "
    "however please sorry here let me my your retry failed exceeded error exception traceback timeout",
    "我 你 图中 图片 圖片 画面 这是 这张 那里 可以看到 是一 因为 但是 抱歉 请 无法",
)
NAME_KEYS = _set(
    "name names entity entityname text word object objectname item value title term 名称 名稱 名字 实体 實體 实体名 "
    "实体名称 物体 物體 物品 对象 文本 词 值"
)
CLASS_KEYS = _set("label class category classname 标签 標籤 类别 類別")
PRESENT_KEYS = _set(
    "present found exists exist visible detected ispresent isvisible inimage status 存在 是否存在 出现 是否出现 可见 "
    "检测到"
)
WRAPPER_KEYS = _set(
    "answer result results output response content text data json final finalanswer value arguments choices message "
    "messages 答案 结果 結果 回答 输出 输出结果 数据"
)
ERROR_KEYS = _set("error errors exception 错误 錯誤 异常")
# With true or false in JSON: they are about the answer and name no entity.
_STATUS_KEYS = _set(
    "success ok status valid done complete completed finished failed truncated cached match matches matched correct "
    "confident certain blurry empty safe nsfw flagged any all"
)
_NONE = re.compile(
    r"(?:there (?:are|is) |the (?:image|picture|photo) (?:contains |does not contain ))?"
    r"(?:(?:no|any) (?:entity|entities|objects?|items?)|none|nothing|empty)"
    r"(?: (?:are |is |were |was )?(?:present|found|visible|identified|detected|of them|of the above))?"
    r"(?: in (?:the|this) (?:image|picture|photo|list))?"
    r"|無|空|空列表|无(?:任何)?(?:实体|物体)?|(?:未|没有)(?:发现|找到)(?:实体)?|[没沒]有(?:任何)?(?:实体|物体)?|一个[也都]没有"
)
_NONE_WORDS = re.compile(r"\b(?:no|none|nothing|not|empty)\b")
_YES = _set("yes y true present found visible 1 ✓ ✔ ✅ ☑ 是 是的 有 有的 存在 出现 可见 对 √")
_NO = _set(
    "no|n|false|absent|missing|0|✗|✘|❌|☒|×|否|无|没有|不是|不存在|未出现|不可见|不|错|not present|not found|not visible",
    "|",
)
_NO_ANSWERS = _set(
    "yes no ok okay sure true false null nan undefined unknown error timeout n/a na unsure maybe done hello hi thanks sorry "
    "nil tbd todo ... 是 否 好 好的 对 未知 不知道 不确定 错误 超时 抱歉 收到 可以 string str object list json"
)
_CLOSINGS = re.compile(
    r"i hope|hope this|let me know|feel free|please let|if you|is there anything|would you like"
)
_REFUSALS = re.compile(
    r"i(?:'m| am)? (?:sorry|unable|not able|afraid|can't|cannot|can not|won't|don't|do not|apologi[sz]e)|sorry|unfortunately"
    r"|as an? (?:ai|language model)|my apologies|(?:很|非常)?抱歉|[对對]不起|我?无法|我不能|作为(?:一个|ai)|不好意思|我看不到"
)
_FIRST = re.compile(r"([^\W\d]+|[✓✔✅☑√✗✘❌☒×])\s*(?:[,.;，。；(（–—-]|$)")
_BRACKETS = re.compile(r"[(（]([^()（）]+)[)）]$")
_MORE = re.compile(
    r"(?:(?:^|\s)(?:etc\b|et cetera|(?:and|&)\s(?:so on|so forth|others|(?:many\s)?more|(?:many\s)?other\s\w+)|"
    r"among\sother(?:s|\sthings))|^(?:so on|others|more|many more)|等等)[\s.…。]*$|^[.…]+$",
    re.IGNORECASE,
)
_SENTENCE_MARKS = (". ", "! ", "? ", "。", "！", "？", "://")

is_negative = _NEGATIVE.marks  # a key or label of what is absent or uncertain
is_remark = _REMARKS.marks  # a key or label of explanations


def normalize_key(key: str) -> str:
    """A key without case, spaces, hyphens and underscores."""
    return normalize_name(key).translate({ord(c): None for c in " _-"})


def key_priority(key: str) -> int | None:
    """How surely the list of entities stands under a JSON key: 0 `found_entities`, 1 `entities`, 2 `found`; None not."""
    if is_negative(key) or is_remark(key):
        return None
    is_presence = _PRESENCE.marks(key)
    if _ENTITIES.marks(key):
        return 0 if is_presence else 1
    return 2 if is_presence and len(_words(key)) <= 2 else None


def is_list_heading(label: str) -> bool:
    """Whether what follows a label in plain text is the list of entities."""
    return not (is_negative(label) or is_remark(label)) and (_ENTITIES.marks(label) or _HEADINGS.marks(label))


def is_about_answer(key: str) -> bool:
    """Whether a key with true or false describes the answer, such as `success`, and names no entity."""
    word = normalize_key(key)
    is_question = word.startswith(("is", "has")) and key[:3].lower().rstrip("_ -") in ("is", "has")
    is_known = word in _STATUS_KEYS | ERROR_KEYS | NAME_KEYS | CLASS_KEYS | PRESENT_KEYS | WRAPPER_KEYS
    return is_known or is_question or key_priority(key) is not None or is_negative(key) or is_remark(key)


def is_none(text: str) -> bool:
    """Whether a text says that there are no entities.

    Example:
        >>> is_none("None."), is_none("No entities were found in the image."), is_none("objects"), is_none("没有")
        (True, True, False, True)
    """
    words = normalize_name(text)
    return bool(_NONE.fullmatch(words)) and (not words.isascii() or bool(_NONE_WORDS.search(words)))


def yes_or_no(value: object) -> bool | None:
    """What a mark of presence says; None where it is no such mark."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    word = normalize_name(value) or value.strip()
    return True if word in _YES else False if word in _NO else None


def first_yes_or_no(text: str) -> bool | None:
    """What a remark such as `no, it is hidden` says first; None where it says something else."""
    first = _FIRST.match(text.strip())
    return yes_or_no(text if first is None else first[1])


def presence_mark(value: object) -> bool | None:
    """Whether something is there, by yes, no or a count; None where it is no such mark."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value > 0
    if isinstance(value, str):
        return int(value) > 0 if value.isdecimal() and len(value) < 4 else first_yes_or_no(value)
    return yes_or_no(value)


def is_yes_or_no(name: str) -> bool:
    """Whether an item of a list answers a question; an object may be called present."""
    return normalize_name(name) in ("yes", "no", "true", "false", "是", "否", "有", "没有")


def is_denial(name: str) -> bool:
    """Whether an item of a list says that something is absent or uncertain."""
    words = re.split(r"[\s()（）,;:]+", normalize_name(name))  # forget-me-not is one
    return any(word in _DENIALS.words for word in words) or any(part in name for part in _DENIALS.parts)


def brackets_at_end(name: str) -> tuple[str, str]:
    """A name without the brackets at its end, and their content; empty where there are none."""
    bracket = _BRACKETS.search(name)
    return (name, "") if bracket is None else (name[: bracket.start()].rstrip(), bracket[1])


def mark_at_end(name: str) -> tuple[str, bool | None]:
    """A name without the tick or bracketed yes or no at its end, and what that says.

    Example:
        >>> mark_at_end("cat ✓"), mark_at_end("dog (no)"), mark_at_end("bird (left)")
        (('cat', True), ('dog', False), ('bird (left)', None))
    """
    if name[-1:] in "✓✔✅☑✗✘❌☒":
        return (name[:-1].rstrip(), yes_or_no(name[-1])) if name else (name, None)
    bare, within = brackets_at_end(name)
    said = first_yes_or_no(within) if within else None
    return (name, None) if said is None else (bare, said)


def without_etc(names: list[str]) -> list[str]:
    """Names without the words at their end that say that there are more, such as "etc."."""
    if not names or (more := _MORE.search(names[-1])) is None:
        return names
    last = names[-1][: more.start()].rstrip()
    return [*names[:-1], last] if last else names[:-1]


def is_closing(text: str) -> bool:
    """Whether a text ends a conversation, such as "I hope this helps"."""
    return _CLOSINGS.match(normalize_name(text[:80])) is not None


def is_refusal(text: str) -> bool:
    """Whether a text begins like a refusal."""
    return _REFUSALS.match(normalize_name(text[:80])) is not None


def is_no_answer(text: str) -> bool:
    """Whether a single word is an error or the answer to another question."""
    return (normalize_name(text) or text.strip()) in _NO_ANSWERS


def is_prose(text: str) -> bool:
    """Whether a text is a sentence, or a part of one, and no name."""
    name = normalize_name(text)
    words = name.split()
    is_long = len(words) > 8 or len(name) > 80 or (len(words) == 1 and len(name) > 30)
    is_sentence = any(word in _PROSE.words for word in words) or any(part in name for part in _PROSE.parts)
    return is_long or is_sentence or any(mark in name for mark in _SENTENCE_MARKS)
