"""Use the installed package as a user does, with no optional library: ``python -I tools/use_wheel.py``."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fairerclip
from fairerclip.data import simulate

EXTRAS = ("torch", "pandas", "pyarrow", "matplotlib", "onnx", "transformers", "fastapi", "fairlearn")


def main() -> None:
    """Import, fit, save, load and predict; then the demo."""
    place = Path(fairerclip.__file__).resolve()
    if "site-packages" not in place.parts:
        raise SystemExit(f"{place} is not the installed package")
    if present := [name for name in EXTRAS if importlib.util.find_spec(name)]:
        raise SystemExit(f"the environment is not empty: it has {', '.join(present)}")
    task = simulate("waterbirds")
    model = fairerclip.FairerCLIP(random_state=0)
    model.fit(
        task.train.X, task.train.y, text=task.text_target, sensitive_text=task.sensitive_attribute().text
    )
    with tempfile.TemporaryDirectory() as folder:
        again = fairerclip.load(model.save(Path(folder) / "model"))
        if not np.array_equal(again.predict(task.test.X), model.predict(task.test.X)):
            raise SystemExit("the loaded model predicts other classes")
        command = [
            str(Path(sys.executable).with_name("fairerclip")),
            "demo",
            "--output",
            str(Path(folder) / "demo"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        made = sorted(file.name for file in (Path(folder) / "demo").iterdir())
    print(
        f"fairerclip {fairerclip.__version__} on Python {sys.version.split()[0]}: import, fit, save, load and demo work"
    )
    print("demo made", ", ".join(made))


if __name__ == "__main__":
    main()
