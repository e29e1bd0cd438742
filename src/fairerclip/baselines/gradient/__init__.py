"""Training by gradient descent, as in Zhang & Ré (2022); only `nets`, `loop` and `contrast` need torch."""
