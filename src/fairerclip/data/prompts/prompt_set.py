"""Prompt sets in memory: the sentences of classes, sensitive values and counterfactuals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import PromptFileError

Prompts = tuple[str, ...]


@dataclass(frozen=True)
class PromptSource:
    """Source of the sentences, with a note on what is uncertain about them."""

    kind: str  # paper, released, debias_vl, ours, own (a file that names no source), …
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
    """Checked prompts of one task.

    Attributes
    ----------
    name : str
        Name in messages and, with `version`, in provenance.
    version : int
        Number that is increased when a sentence changes.
    source : PromptSource
        Source of the sentences.
    classes : dict of str to tuple of str
        Class names in the order of the labels 0, 1, …, each with its prompts. Empty in a set that only
        describes a sensitive attribute.
    sensitive : dict of str to dict
        For each attribute its value names, in the order of the codes 0, 1, …, each with its prompts.
    counterfactual : tuple of Counterfactual
        Sentences that name a class and a sensitive value.
    spurious : tuple of str
        Sentences whose span Orth-Proj and Orth-Cali remove.
    harmful, helpful : tuple of (str, str)
        Pairs of sentences whose difference RoboShot removes from images, and strengthens in them.
    pairs : tuple of (str, str)
        Pairs of opposite classes; one model is fitted for each pair.
    templates : tuple of str
        Templates into which names were filled, if the file has names.
    queries : tuple of str
        Free queries for a gallery.
    """

    name: str
    version: int
    source: PromptSource
    classes: dict[str, Prompts]
    sensitive: dict[str, dict[str, Prompts]] = field(default_factory=dict)
    counterfactual: tuple[Counterfactual, ...] = ()
    spurious: Prompts = ()
    harmful: tuple[tuple[str, str], ...] = ()
    helpful: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    templates: Prompts = ()
    queries: Prompts = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their labels."""
        return tuple(self.classes)

    def class_prompts(self) -> tuple[Prompts, ...]:
        """Return the prompts of each class, in the order of the labels.

        Examples
        --------
        >>> PromptSet("pets", 1, PromptSource("ours", "-"), {"cat": ("a cat",), "dog": ("a dog",)}).class_prompts()
        (('a cat',), ('a dog',))
        """
        return tuple(self.classes.values())

    def class_prompts_by_template(self) -> tuple[tuple[Prompts, ...], ...]:
        """Return, for each template, the prompts of each class; empty unless all classes use the same templates.

        Examples
        --------
        >>> filled = {"cat": ("a cat", "the cat"), "dog": ("a dog", "the dog")}
        >>> pets = PromptSet("pets", 1, PromptSource("ours", "-"), filled, templates=("a {}", "the {}"))
        >>> pets.class_prompts_by_template()
        ((('a cat',), ('a dog',)), (('the cat',), ('the dog',)))
        """
        m = len(self.templates)
        # If a class has prompts or templates of its own, no wording is common to all classes.
        if not m or not self.classes or not all(_fill(self.templates, p) for p in self.classes.values()):
            return ()
        return tuple(tuple(prompts[k::m] for prompts in self.classes.values()) for k in range(m))

    def sensitive_names(self, attribute: str) -> tuple[str, ...]:
        """Return the names of an attribute's values, in the order of their codes."""
        return tuple(self._values(attribute))

    def sensitive_prompts(self, attribute: str) -> tuple[Prompts, ...]:
        """Return the prompts of each value of a sensitive attribute, in the order of the codes.

        Raises
        ------
        PromptFileError
            The set has no such attribute.
        """
        return tuple(self._values(attribute).values())

    def all_prompts(self) -> list[str]:
        """Return every sentence once, in a fixed order, for one call of a text encoder."""
        groups: list[Iterable[str]] = list(self.classes.values())
        groups += [prompts for values in self.sensitive.values() for prompts in values.values()]
        groups += [[sentence.prompt for sentence in self.counterfactual], self.spurious, self.queries]
        groups += [*self.harmful, *self.helpful]
        return list(dict.fromkeys(prompt for group in groups for prompt in group))

    def select(self, classes: Sequence[str]) -> PromptSet:
        """Return the set with these classes only, in this order, and with their counterfactuals.

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
            counterfactual=tuple(entry for entry in self.counterfactual if entry.class_name in names),
            pairs=tuple(pair for pair in self.pairs if set(pair) <= set(names)),
        )

    def _values(self, attribute: str) -> dict[str, Prompts]:
        if attribute not in self.sensitive:
            where = f"prompt set {self.name!r}"
            raise PromptFileError(unknown(where, "sensitive attribute", attribute, self.sensitive))
        return self.sensitive[attribute]


def _fill(templates: Prompts, prompts: Prompts) -> bool:
    """Return whether the prompts are one or more names, each filled into all templates in order."""
    m = len(templates)
    parts = [template.split("{}") for template in templates]
    if len(prompts) % m or any(len(part) != 2 for part in parts):
        return False
    for start in range(0, len(prompts), m):
        filled = prompts[start : start + m]
        (before, after), first = parts[0], filled[0]
        name = first[len(before) : len(first) - len(after)]
        if any(prompt != a + name + b for prompt, (a, b) in zip(filled, parts, strict=True)):
            return False
    return True


def unknown(where: str, noun: str, name: str, available: Iterable[str]) -> str:
    """Return the message for an unknown name, with similar names and all available ones."""
    known = list(available)
    close = nearest(name, known, 3)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{where}: no {noun} {name!r}; {hint}there are: {', '.join(known) or 'none'}"
