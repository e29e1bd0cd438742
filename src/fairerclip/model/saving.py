"""`SavedModel`: files of every kind of model, and the names that users of the Hugging Face Hub expect."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Self

from fairerclip._util.extras import require
from fairerclip.model.details import ModelDetails


class SavedModel:
    """Methods of a model that can be saved; docs/reference/format.md describes the folder."""

    details_: ModelDetails
    """What is known besides the numbers; only a loaded model has it, until it is fitted again."""

    def save(
        self,
        path: str | Path,
        *,
        overwrite: bool = False,
        precision: str = "full",
        details: ModelDetails | None = None,
    ) -> Path:
        """Write the fitted model as a folder of tensors, JSON and a card, whole or not at all. No pickle.

        Parameters
        ----------
        path : str or Path
            The folder; it is created with its parents.
        overwrite : bool
            Replace a model that is there, or fill an empty folder; anything else is left alone.
        precision : {"full", "float16"}
            Precision of the file. "full" answers as this model bit for bit. "float16" stores tensors of two axes in
            half precision where this changes them by at most 0.1 % of their norm; the loaded model computes in the
            precision that this one has (docs/reference/format.md has the effect).
        details : ModelDetails, optional
            Prompts, provenance, figures and other facts for the manifest and the card. Default: those of the file that
            this model was loaded from, if it was.

        Raises
        ------
        ModelFileError
            A label or parameter is not a number, string or boolean.
        OutputExistsError
            The path exists.
        """
        from fairerclip.model.archive import save

        return save(self, Path(path), overwrite=overwrite, precision=precision, details=details)

    @classmethod
    def load(cls, path: str | Path, *, mapped: bool = False) -> Self:
        """Read a model of this class that `save` wrote, without running code from it; see `fairerclip.load`."""
        from fairerclip.model.archive import load_as

        model: Self = load_as(Path(path), cls, mapped=mapped)
        return model

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> Path:
        """Write the model as `save` does, and replace a model that is there, as Hugging Face libraries do."""
        return self.save(save_directory, **{"overwrite": True, **options})

    @classmethod
    def from_pretrained(cls, path: str | Path, *, mapped: bool = False) -> Self:
        """Read a model from a local folder, as `load` does; nothing is fetched."""
        return cls.load(path, mapped=mapped)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a model of fairerclip",
        **options: Any,
    ) -> str:
        """Upload the folder of the model to the Hugging Face Hub (extra ``hub``); the only call that uses the network.

        Parameters
        ----------
        repo_id : str
            Repository, as ``"user/name"``; it is created if it does not exist.
        private, token, revision, commit_message
            As in ``huggingface_hub.HfApi``.
        **options
            Options of `save`.

        Returns
        -------
        str
            Address of the commit.
        """
        hub = require("huggingface_hub", "hub", "push_to_hub")
        api = hub.HfApi(token=token, library_name="fairerclip")
        with tempfile.TemporaryDirectory() as folder:
            saved = self.save(Path(folder) / "model", **options)
            api.create_repo(repo_id, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=repo_id, folder_path=saved, revision=revision, commit_message=commit_message
            )
        return str(done.commit_url)
