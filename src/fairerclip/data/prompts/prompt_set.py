"""A prompt set in memory: what its classes, sensitive values and counterfactuals are called in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import PromptFileError

Prompts = tuple[str, ...]


@dataclass(frozen=True)
class PromptSource:
    """Where the sentences come from, and what is uncertain about them."""

    kind: str  # paper, released, debias_vl, ours, …
    citation: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """A sentence that names a class together with sensitive values."""

    class_name: str
    sensitive: dict[str, str]  # attribute -> value
    prompt: str


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Prompts of one task, checked.

    Attributes
    ----------
    name : str
        For messages and for provenance, with `version`.
    version : int
        Raised whenever a sentence changes.
    source : PromptSource
        Who wrote the sentences.
    classes : dict of str to tuple of str
        Class names in the order of the labels 0, 1, …, each with its prompts. Empty in a set that only
        describes a sensitive attribute.
    sensitive : dict of str to dict
        Attribute to value names, in the order of the codes 0, 1, …, to prompts.
    counterfactual : tuple of Counterfactual
        Sentences that name a class and a sensitive value.
    spurious : tuple of str
        Sentences whose span Orth-Proj and Orth-Cali remove.
    pairs : tuple of (str, str)
        Classes that are opposites of each other; one model is fitted for each pair.
    templates : tuple of str
        What the names were filled into, where the file gave names.
    """

    name: str
    version: int
    source: PromptSource
    classes: dict[str, Prompts]
    sensitive: dict[str, dict[str, Prompts]] = field(default_factory=dict)
    counterfactual: tuple[Counterfactual, ...] = ()
    spurious: Prompts = ()
    pairs: tuple[tuple[str, str], ...] = ()
    templates: Prompts = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        return tuple(self.classes)

    def class_prompts(self) -> tuple[Prompts, ...]:
        """Prompts of each class, in the order of the labels.

        Examples
        --------
        >>> PromptSet("pets", 1, PromptSource("ours", "-"), {"cat": ("a cat",), "dog": ("a dog",)}).class_prompts()
        (('a cat',), ('a dog',))
        """
        return tuple(self.classes.values())

    def class_prompts_by_template(self) -> tuple[tuple[Prompts, ...], ...]:
        """For each template the prompts of each class; empty unless every class is the same templates filled in.

        Examples
        --------
        >>> filled = {"cat": ("a cat", "the cat"), "dog": ("a dog", "the dog")}
        >>> pets = PromptSet("pets", 1, PromptSource("ours", "-"), filled, templates=("a {}", "the {}"))
        >>> pets.class_prompts_by_template()
        ((('a cat',), ('a dog',)), (('the cat',), ('the dog',)))
        """
        m = len(self.templates)
        # A class may have prompts, or templates, of its own: then no wording is common to all of them.
        if not m or not self.classes or not all(_fill(self.templates, p) for p in self.classes.values()):
            return ()
        return tuple(tuple(prompts[k::m] for prompts in self.classes.values()) for k in range(m))

    def sensitive_names(self, attribute: str) -> tuple[str, ...]:
        """Names of an attribute's values, in the order of their codes."""
        return tuple(self._values(attribute))

    def sensitive_prompts(self, attribute: str) -> tuple[Prompts, ...]:
        """Prompts of each value of a sensitive attribute, in the order of the codes.

        Raises
        ------
        PromptFileError
            The set has no such attribute.
        """
        return tuple(self._values(attribute).values())

    def all_prompts(self) -> list[str]:
        """Every sentence once, in a fixed order: what one call of a text encoder needs."""
        groups: list[Iterable[str]] = list(self.classes.values())
        groups += [prompts for values in self.sensitive.values() for prompts in values.values()]
        groups += [[one.prompt for one in self.counterfactual], self.spurious]
        return list(dict.fromkeys(prompt for group in groups for prompt in group))

    def select(self, classes: Sequence[str]) -> PromptSet:
        """Keep these classes, in this order, with their counterfactuals; for one model per opposite pair.

        Raises
        ------
        PromptFileError
            A class is not in the set, or is named twice.

        Examples
        --------
        >>> from fairerclip.data.prompts import load_prompts
        >>> load_prompts("fairface").select(["good", "evil"]).class_names
        ('good', 'evil')
        """
        names = tuple(classes)
        for name in names:
            if name not in self.classes:
                raise PromptFileError(unknown(f"prompt set {self.name!r}", "class", name, self.classes))
        if len(set(names)) != len(names) or not names:
            raise PromptFileError(
                f"prompt set {self.name!r}: expected distinct classes, at least one, got {names}"
            )
        return replace(
            self,
            classes={name: self.classes[name] for name in names},
            counterfactual=tuple(one for one in self.counterfactual if one.class_name in names),
            pairs=tuple(pair for pair in self.pairs if set(pair) <= set(names)),
        )

    def _values(self, attribute: str) -> dict[str, Prompts]:
        if attribute not in self.sensitive:
            where = f"prompt set {self.name!r}"
            raise PromptFileError(unknown(where, "sensitive attribute", attribute, self.sensitive))
        return self.sensitive[attribute]


def _fill(templates: Prompts, prompts: Prompts) -> bool:
    """Whether the prompts are name after name, each filled into all templates in turn."""
    m = len(templates)
    parts = [template.split("{}") for template in templates]
    if len(prompts) % m or any(len(part) != 2 for part in parts):
        return False
    for start in range(0, len(prompts), m):
        filled = prompts[start : start + m]
        (before, after), first = parts[0], filled[0]
        name = first[len(before) : len(first) - len(after)]
        if any(one != a + name + b for one, (a, b) in zip(filled, parts, strict=True)):
            return False
    return True


def unknown(where: str, what: str, name: str, there: Iterable[str]) -> str:
    """Message for a name that is not there, with the nearest ones or all of them."""
    known = list(there)
    close = nearest(name, known, 3)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{where}: no {what} {name!r}; {hint}there are: {', '.join(known) or 'none'}"
