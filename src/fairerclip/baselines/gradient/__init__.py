"""Training by gradient, as in Zhang & Ré (2022); `nets`, `loop` and `contrast` need torch, the rest does without."""
