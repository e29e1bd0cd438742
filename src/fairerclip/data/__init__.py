"""What comes in: task files, read without trusting them, and simulated tasks.

A `Task` holds the `Split`s, the prompts' embeddings and the `Sensitive` attributes of one experiment.
"""

# Not lazy: these need numpy alone, and a lazy `simulate` would be the function or the submodule of that name
# depending on who imports first.
from fairerclip.data.simulate import simulate
from fairerclip.data.task import Sensitive, Split, Task, load_task, save_task

__all__ = ["Sensitive", "Split", "Task", "load_task", "save_task", "simulate"]
