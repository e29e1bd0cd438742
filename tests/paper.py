"""The paper's method as parameters: what the estimator's defaults have moved away from."""

PAPER = {
    "tau": 0.7,
    "gamma": 1e-4,
    "bandwidth": "median",
    "zero_shot": 0.0,
    "decision": "prompts",
    "refine": True,
    "class_weight": None,
}
