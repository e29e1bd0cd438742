"""Input data: readers of embeddings, labels and task files that check everything, and simulated tasks.

`open_store` opens embeddings in the common layouts, `preflight` checks them, `read_labels` reads labels and `join`
matches them with embeddings by id. A `Task` holds the `Split`s, the prompt embeddings and the `Sensitive` attributes
of one experiment. `read_dataset` reads the lists of a public data set, `load_prompts` and `encode_prompts` its
prompts. `from_table` and `build_task` make a task of labels, embeddings and prompts. `on_device` moves blocks of
embeddings to an accelerator when they are used.
"""

# Not lazy: these need only numpy, and a lazy `simulate`, `join` or `preflight` would be the function or the
# submodule of that name depending on which is imported first.
from fairerclip._util.lazy import lazy
from fairerclip.data.join import Join, join
from fairerclip.data.label_table import LabelTable, read_labels
from fairerclip.data.preflight import Preflight, preflight
from fairerclip.data.provenance import Provenance
from fairerclip.data.resplit import resplit
from fairerclip.data.simulate import open_task, simulate
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.data.task import (
    Sensitive,
    SentencePairs,
    Sentences,
    Split,
    Task,
    Variants,
    load_task,
    save_task,
)
from fairerclip.data.writer import StoreWriter, read_text

_HOMES = {
    "CodedLabels": "coded_labels",
    "Limits": "io.npy",
    "available_prompts": "prompts",
    "build_task": "build",
    "encode_prompts": "prompts",
    "from_table": "labelled_rows",
    "load_prompts": "prompts",
    "on_device": "device_rows",
    "read_dataset": "datasets",
}

__all__ = [  # noqa: PLE0604 - the lazy names are those of _HOMES
    *_HOMES,
    "EmbeddingStore",
    "Join",
    "LabelTable",
    "Preflight",
    "Provenance",
    "Sensitive",
    "SentencePairs",
    "Sentences",
    "Split",
    "StoreWriter",
    "Task",
    "Variants",
    "join",
    "load_task",
    "open_store",
    "open_task",
    "preflight",
    "read_labels",
    "read_text",
    "resplit",
    "save_task",
    "simulate",
]
__getattr__ = lazy(__name__, _HOMES)[0]
