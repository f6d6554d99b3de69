"""Entry point of the worker: `python -I -S -B -X utf8 …/worker/__main__.py [environment [rights [program …]]]`.

With `-S`, the packages of the environment become importable after the sandbox was applied. For sources, `-I -S` is
replaced by `-s`. `environment` is the interpreter of an environment, if it is not the one that runs. `rights` is a file
with the worker's permissions (`sandbox.py`). If a program is given, it replaces this worker.
"""

import importlib.util
import os
import sys

NAME = "onnxgate_worker"
FOLDER = os.path.dirname(os.path.abspath(__file__))


if __name__ == "__main__":
    # Remove this folder from the path: a source may have its own modules `limits` or `exporters`.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != FOLDER]
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(FOLDER, "__init__.py"), submodule_search_locations=[FOLDER]
    )
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    if sys.argv[3:]:
        importlib.import_module(NAME + ".sandbox").exec_sandboxed(sys.argv[2], sys.argv[3:])
    else:
        importlib.import_module(NAME + ".server").main(*sys.argv[1:])
