"""Parsing of the content of a prompt file into a `PromptSet`; every key and every sentence is checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fairerclip.data.io.bounded_text import nearest
from fairerclip.data.prompts.prompt_set import Counterfactual, Prompts, PromptSet, PromptSource
from fairerclip.errors import PromptFileError

VERSION_FIRST = 1
MAX_PROMPTS = 100_000  # of all classes and values; names times templates grow fast
MAX_ALL_CHARACTERS = 16 * 1024**2  # of these prompts together
MAX_CHARACTERS = 2_000  # of one sentence; CLIP reads 77 tokens
HOLE = "{}"
_KEYS = (
    *("version", "name", "source", "classes", "sensitive"),
    *("counterfactual", "spurious", "harmful", "helpful", "pairs", "templates", "queries"),
)
ABOUT = ("version", "name", "source")
"""Keys on the file itself, which a user's file may leave out."""
OWN = PromptSource("own", "none given")
"""Source of a file that does not name one."""
_SOURCE_KEYS = ("kind", "citation", "note")
_COUNTERFACTUAL_KEYS = ("class", "sensitive", "prompt")
_FILLED_KEYS = ("names", "templates")


def parse_prompts(data: Mapping[str, Any], where: str, *, stem: str | None = None) -> PromptSet:
    """Check the content of a prompt file and fill in its templates.

    Parameters
    ----------
    data : mapping
        Content of the file.
    where : str
        Name of the file in messages.
    stem : str or None
        Name of the set, if the file has none: then ``version``, ``name`` and ``source`` may be left out. None
        requires them, as in the sets of the package.
    """
    _check_keys(data, _KEYS, ABOUT if stem is None else (), where)
    version = data.get("version", VERSION_FIRST)
    if not isinstance(version, int) or isinstance(version, bool) or version < VERSION_FIRST:
        raise PromptFileError(
            f"{where}: version: expected a whole number from {VERSION_FIRST}, got {version!r}"
        )
    templates = check_templates(data.get("templates", []), f"{where}: templates")
    budget = PromptBudget(where)
    classes = _named(data.get("classes", {}), templates, f"{where}: classes", budget)
    if len(classes) == 1:
        raise PromptFileError(f"{where}: classes: expected at least two, got {', '.join(classes)} alone")
    sensitive = {
        _name(attribute, f"{where}: sensitive"): _named(
            values, templates, f"{where}: sensitive.{attribute}", budget
        )
        for attribute, values in _mapping(data.get("sensitive", {}), f"{where}: sensitive").items()
    }
    for attribute, values in sensitive.items():
        if not values:
            raise PromptFileError(f"{where}: sensitive.{attribute}: expected at least one value, got none")
    if not classes and not sensitive:
        raise PromptFileError(f"{where}: expected classes or sensitive attributes, got neither")
    return PromptSet(
        name=_sentence(data.get("name", stem), f"{where}: name"),
        version=version,
        source=_source(data["source"], f"{where}: source") if "source" in data else OWN,
        classes=classes,
        sensitive=sensitive,
        counterfactual=_counterfactuals(data.get("counterfactual", []), classes, sensitive, where),
        spurious=_sentences(data.get("spurious", []), f"{where}: spurious"),
        harmful=_sentence_pairs(data.get("harmful", []), f"{where}: harmful"),
        helpful=_sentence_pairs(data.get("helpful", []), f"{where}: helpful"),
        pairs=_pairs(data.get("pairs", []), classes, f"{where}: pairs"),
        templates=templates,
        queries=_prompts(data["queries"], templates, f"{where}: queries", budget)
        if "queries" in data
        else (),
    )


def _named(value: Any, templates: Prompts, where: str, budget: PromptBudget) -> dict[str, Prompts]:
    """Return prompts by name, from ``{name: prompts}`` or from a list of names to fill into the templates."""
    if isinstance(value, list):
        names = _sentences(value, where)
        value = {name: {"names": [name]} for name in names}
    prompts: dict[str, Prompts] = {}
    for name, given in _mapping(value, where).items():
        prompts[_name(name, where)] = _prompts(given, templates, f"{where}.{name:.60}", budget)
    owner: dict[str, str] = {}
    for name, sentences in prompts.items():
        for sentence in sentences:
            if sentence in owner:
                raise PromptFileError(
                    f"{where}: expected each prompt once, got {sentence!r} under {owner[sentence]!r} and {name!r}; "
                    "change one of them"
                )
            owner[sentence] = name
    return prompts


class PromptBudget:
    """Count of prompts and characters with a limit, since a small file of names and templates can make many."""

    def __init__(self, where: str) -> None:
        self._where, self._prompts, self._characters = where, 0, 0

    def add(self, prompts: int, characters: int) -> None:
        """Count prompts before they are made; raise if there are too many."""
        self._prompts += prompts
        self._characters += characters
        if self._prompts > MAX_PROMPTS or self._characters > MAX_ALL_CHARACTERS:
            raise PromptFileError(
                f"{self._where}: expected at most {MAX_PROMPTS:,} prompts of {MAX_ALL_CHARACTERS:,} characters in all, "
                f"got at least {self._prompts:,} of {self._characters:,}"
            )


def _prompts(given: Any, templates: Prompts, where: str, budget: PromptBudget) -> Prompts:
    """Return the prompts of one class or value: a sentence, a list of sentences, or names and templates."""
    given = [given] if isinstance(given, str) else given
    if isinstance(given, list):
        prompts = _sentences(given, where)
        budget.add(len(prompts), sum(map(len, prompts)))
        holes = [prompt for prompt in prompts if HOLE in prompt]
        if holes:
            raise PromptFileError(
                f'{where}: expected sentences, got the template {holes[0]!r}; write {{"names": [...]}} and '
                "put it under templates"
            )
    else:
        parts = _mapping(given, where)
        _check_keys(parts, _FILLED_KEYS, ("names",), where)
        names = _sentences(parts["names"], f"{where}.names")
        chosen = (
            check_templates(parts["templates"], f"{where}.templates") if "templates" in parts else templates
        )
        if names and not chosen:
            raise PromptFileError(
                f'{where}: expected templates such as "a photo of a {{}}.", got names alone'
            )
        lengths = len(chosen) * sum(map(len, names)) + len(names) * sum(map(len, chosen))
        budget.add(len(names) * len(chosen), lengths)
        # Not str.format, with which a template could read attributes of objects.
        prompts = tuple(template.replace(HOLE, name) for name in names for template in chosen)
    if not prompts:
        raise PromptFileError(f"{where}: expected at least one prompt, got none")
    return prompts


def check_templates(value: Any, where: str) -> Prompts:
    """Return templates as a tuple; raise unless they are different sentences with one ``{}`` each.

    `where` names their source in messages.
    """
    templates = _sentences(value, where)
    for template in templates:
        if template.count(HOLE) != 1:
            raise PromptFileError(
                f"{where}: expected one {HOLE} in each template, got {template.count(HOLE)} in {template!r}"
            )
    return templates


def _counterfactuals(
    value: Any, classes: Mapping[str, Prompts], sensitive: Mapping[str, Mapping[str, Prompts]], where: str
) -> tuple[Counterfactual, ...]:
    counterfactuals = []
    for i, entry in enumerate(_list(value, f"{where}: counterfactual")):
        at = f"{where}: counterfactual[{i}]"
        parts = _mapping(entry, at)
        _check_keys(parts, _COUNTERFACTUAL_KEYS, _COUNTERFACTUAL_KEYS, at)
        values = _mapping(parts["sensitive"], f"{at}.sensitive")
        if not values:
            raise PromptFileError(f"{at}.sensitive: expected at least one attribute, got none")
        _known(parts["class"], classes, f"{at}.class", "class")
        for attribute, named in values.items():
            _known(attribute, sensitive, f"{at}.sensitive", "attribute")
            _known(named, sensitive[attribute], f"{at}.sensitive.{attribute}", "value")
        prompt = _sentence(parts["prompt"], f"{at}.prompt")
        counterfactuals.append(Counterfactual(parts["class"], dict(values), prompt))
    _sentences([sentence.prompt for sentence in counterfactuals], f"{where}: counterfactual")
    return tuple(counterfactuals)


def _pairs(value: Any, classes: Mapping[str, Prompts], where: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for pair in _list(value, where):
        if not (isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]):
            raise PromptFileError(f"{where}: expected pairs of two different classes, got {pair!r}")
        for name in pair:
            _known(name, classes, where, "class")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _sentence_pairs(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for i, pair in enumerate(_list(value, where)):
        if not (isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]):
            raise PromptFileError(
                f"{where}[{i}]: expected a pair of two different sentences, got {pair!r:.200}"
            )
        first, second = (_sentence(sentence, f"{where}[{i}]") for sentence in pair)
        pairs.append((first, second))
    return tuple(pairs)


def _source(value: Any, where: str) -> PromptSource:
    parts = _mapping(value, where)
    _check_keys(parts, _SOURCE_KEYS, ("kind", "citation"), where)
    note = parts.get("note", "")
    if not isinstance(note, str):
        raise PromptFileError(f"{where}.note: expected text, got {note!r}")
    return PromptSource(
        _sentence(parts["kind"], f"{where}.kind"), _sentence(parts["citation"], f"{where}.citation"), note
    )


def _known(name: Any, available: Collection[str], where: str, noun: str) -> None:
    if not isinstance(name, str) or name not in available:
        known = list(available)
        close = nearest(name, known) if isinstance(name, str) else []
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise PromptFileError(
            f"{where}: expected a known {noun} ({', '.join(known) or 'there is none'}), got {name!r}{hint}"
        )


def _check_keys(data: Mapping[str, Any], known: Collection[str], needed: Iterable[str], where: str) -> None:
    for key in data:
        _known(key, known, where, "key")
    missing = [key for key in needed if key not in data]
    if missing:
        raise PromptFileError(
            f"{where}: expected the keys {', '.join(missing)}, got {', '.join(data) or 'none'}"
        )


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PromptFileError(f"{where}: expected an object or table with names, got {type(value).__name__}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise PromptFileError(f"{where}: expected a list, got {type(value).__name__}")
    return value


def _sentences(value: Any, where: str) -> Prompts:
    sentences = tuple(_sentence(entry, f"{where}[{i}]") for i, entry in enumerate(_list(value, where)))
    seen: set[str] = set()
    for sentence in sentences:
        if sentence in seen:
            raise PromptFileError(f"{where}: expected each entry once, got {sentence!r} twice")
        seen.add(sentence)
    return sentences


def _sentence(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PromptFileError(f"{where}: expected text, got {value!r}")
    if len(value) > MAX_CHARACTERS:
        raise PromptFileError(
            f"{where}: expected text of at most {MAX_CHARACTERS} characters, got {len(value)}"
        )
    if not value.isprintable():
        raise PromptFileError(f"{where}: expected one line of printable text, got {value!r}")
    return value


def _name(value: str, where: str) -> str:
    return _sentence(value, f"{where}: a name")
