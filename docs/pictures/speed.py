"""Every figure of the kept benchmarks that has a target, as a share of that target."""

import json

import matplotlib.pyplot as plt
from story import DOCS

RESULTS = DOCS.parent / "benchmarks" / "results"
bars = []
for file in sorted(RESULTS.glob("*.json")):
    for figure in json.loads(file.read_text(encoding="utf-8"))["figures"]:
        if figure.get("at_most"):
            bars.append((figure["value"] / figure["at_most"], figure["name"], figure["met"]))
        elif figure.get("at_least"):
            bars.append((figure["at_least"] / figure["value"], figure["name"], figure["met"]))
bars.sort()
drawing, axes = plt.subplots(figsize=(8, 0.32 * len(bars) + 0.8), layout="constrained")
colours = ["#2166ac" if met else "#b2182b" for *_, met in bars]
axes.barh([name for _, name, _ in bars], [share for share, *_ in bars], color=colours)
axes.axvline(1, color="black", linewidth=1)
axes.text(1, len(bars) - 0.3, " target", va="bottom")
axes.set_xlabel("share of its target")
