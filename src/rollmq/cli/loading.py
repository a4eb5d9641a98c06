"""Finds what `--app module:name` means, and says in words why it does not.

It imports user code, from the folder in which the command runs; what that raises is shown, never swallowed.
"""

import functools
import importlib
import os
import sys
from typing import Any

from rollmq.errors import HandlerProblem
from rollmq.library.handling import attempt
from rollmq.tasks import App
from rollmq.worker import Worker

NAME_DEFAULT = "app"


def load(text: str) -> Any:
    """The object that `module:name` names; without a name it is `app`. Raises HandlerProblem."""
    module_name, _, name = text.partition(":")
    name = name or NAME_DEFAULT
    is_path = text.endswith(".py") or not all(
        part.isidentifier() for part in f"{module_name}.{name}".split(".")
    )
    if is_path:
        raise HandlerProblem(
            f"--app {text}: write MODULE:NAME, for example shop.tasks:app (no path, and no .py at its end)."
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, problem = attempt(functools.partial(importlib.import_module, module_name))
    if module is None:
        raise HandlerProblem(_why_not(text, module_name, problem))
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise HandlerProblem(f"--app {text}: the module {module_name} has no {name!r}.{_instead(module)}")
    return found


def _why_not(text: str, module_name: str, problem: str) -> str:
    last = problem.rstrip().rpartition("\n")[2]
    missing = f"ModuleNotFoundError: No module named {module_name.split('.')[0]!r}"
    if last in (missing, f"ModuleNotFoundError: No module named {module_name!r}"):
        return (
            f"--app {text}: there is no module {module_name!r} in {os.getcwd()} or among the installed ones. "
            f"Run the command in the folder that holds it, or set PYTHONPATH."
        )
    return f"--app {text}: importing {module_name} failed:\n{problem.rstrip()}"


def _instead(module: Any) -> str:
    """Names in the module that would do."""
    names = [name for name, value in vars(module).items() if is_usable(value)]
    return f" It has {', '.join(f'{module.__name__}:{name}' for name in names)}." if names else ""


def is_usable(value: object) -> bool:
    """Whether a worker can be made of it."""
    return isinstance(value, Worker | App)
