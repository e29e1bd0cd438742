"""Export of an encoder as an ONNX folder: two graphs with their weights, a tokenizer, and the settings."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip.encoders.encoder import ClipEncoder, Encoder, Tokenizer
from fairerclip.encoders.onnx import FORMAT_VERSION, IMAGE, MAX_ONNX_BYTES, SETTINGS, TEXT, TOKENIZER
from fairerclip.encoders.tokens import Tokens
from fairerclip.encoders.torch_encoder import TorchTowers
from fairerclip.errors import EncoderError, OutputExistsError

_OPSET = 17
_CLIP_WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""


def export_onnx(encoder: Encoder, folder: str | Path) -> Path:
    """Write an open_clip or transformers encoder as a folder that ``load("onnx:FOLDER")`` opens.

    Parameters
    ----------
    encoder : Encoder
        Encoder on the CPU.
    folder : str or Path
        Folder that does not exist yet; it appears complete or not at all.

    Returns
    -------
    Path
        The folder.
    """
    require("onnx", "onnx", "exporting to ONNX")
    folder = Path(folder)
    if folder.exists():
        raise OutputExistsError(f"{folder} exists; choose another name")
    if not isinstance(encoder, ClipEncoder) or not isinstance(encoder.towers, TorchTowers):
        raise EncoderError(f"only open_clip and transformers encoders can be exported; got {encoder.name}")
    towers = encoder.towers
    tokenizer, context, pad_id = _tokenizer(encoder.tokenizer)
    settings = {
        "format_version": FORMAT_VERSION,
        "model": encoder.provenance.model,
        "width": encoder.width,
        "preprocessing": encoder.preprocessing.as_dict(),
        "context": context,
        "pad_id": pad_id,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        torch = require("torch", "torch", "exporting to ONNX")
        pixels = torch.zeros(2, 3, *encoder.preprocessing.output_size)
        _export(towers.model, towers.image, pixels, temporary / IMAGE)
        ids = torch.from_numpy(encoder.tokenizer.ids(["a", "a photo"]))
        _export(towers.model, towers.text, ids, temporary / TEXT)
        tokenizer.save(str(temporary / TOKENIZER))
        (temporary / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _tokenizer(tokens: Tokenizer) -> tuple[Any, int, int]:
    """Return an equivalent tokenizer of the tokenizers library, its context length and its padding id."""
    if isinstance(tokens, Tokens) and tokens.clean is None:
        return tokens.tokenizer, tokens.context, tokens.pad_id
    simple: Any = getattr(tokens, "tokenizer", None)
    return _clip_tokenizer(simple), int(simple.context_length), 0


@contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Make torch compute attention with operators that ONNX has, not with its fused one; restore the setting after."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _export(model: Any, tower: Callable[[Any], Any], example: Any, path: Path) -> None:
    torch = require("torch", "torch", "exporting to ONNX")

    class Tower(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model  # makes its weights parameters of the graph

        def forward(self, values: Any) -> Any:
            return tower(values)

    with warnings.catch_warnings(), torch.no_grad(), _plain_attention(torch):
        warnings.simplefilter("ignore")  # tracing warns of shapes that are constant on purpose
        torch.onnx.export(
            Tower().eval(),
            (example,),
            str(path),
            dynamo=False,  # the newer exporter needs another library
            opset_version=_OPSET,
            input_names=["input"],
            output_names=["embedding"],
            dynamic_axes={"input": {0: "batch"}, "embedding": {0: "batch"}},
        )
    if path.stat().st_size > MAX_ONNX_BYTES or len(list(path.parent.glob("*"))) > 2:
        raise EncoderError("the model is too large for one ONNX file: its weights would be in another file")


def _clip_tokenizer(tokens: Any) -> Any:
    """Convert open_clip's byte-pair encoding to a ``tokenizers`` tokenizer, without its repair of broken Unicode."""
    simple = require("open_clip.tokenizer", "open-clip", "exporting to ONNX")
    lib = require("tokenizers", "onnx", "exporting to ONNX")
    if not isinstance(tokens, simple.SimpleTokenizer) or tokens.reduction_fn is not None:
        raise EncoderError("only models with CLIP's own tokenizer can be exported from open_clip")
    merges = sorted(tokens.bpe_ranks, key=tokens.bpe_ranks.__getitem__)
    start, end = (tokens.decoder[i] for i in (tokens.sot_token_id, tokens.eot_token_id))
    out = lib.Tokenizer(
        lib.models.BPE(vocab=tokens.encoder, merges=merges, end_of_word_suffix="</w>", unk_token=end)
    )
    steps = lib.normalizers
    out.normalizer = steps.Sequence(
        [steps.NFC(), steps.Replace(lib.Regex(r"\s+"), " "), steps.Strip(), steps.Lowercase()]
    )
    split = lib.pre_tokenizers.Split(lib.Regex(_CLIP_WORDS), behavior="removed", invert=True)
    out.pre_tokenizer = lib.pre_tokenizers.Sequence(
        [split, lib.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    out.post_processor = lib.processors.TemplateProcessing(
        single=f"{start} $A {end}",
        special_tokens=[(start, tokens.sot_token_id), (end, tokens.eot_token_id)],
    )
    return out
