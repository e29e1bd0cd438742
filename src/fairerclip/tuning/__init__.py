"""Choose a model on labelled rows: `FairerCLIPSearch`, its candidates, objectives and offsets."""
