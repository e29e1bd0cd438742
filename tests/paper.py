"""The paper's target, decision and refinement at our own scaling; the method as published is `preset("paper")`."""

PAPER = {
    "tau": 0.7,
    "gamma": 1e-4,
    "bandwidth": "median",
    "zero_shot": 0.0,
    "decision": "prompts",
    "refine": True,
    "class_weight": None,
    "criterion": "marginal",
    "guess_weight": 1.0,
    "class_offsets": None,
}
