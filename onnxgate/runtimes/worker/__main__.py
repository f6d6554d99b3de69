"""Starts the worker: `python -I -B -X utf8 …/worker/__main__.py`."""

import importlib.util
import os
import sys

# The folder is imported as a package of its own name: nothing of it shows on `sys.path`, where a source's own modules
# may be called `wire` or `exporters`.
NAME = "onnxgate_worker"


def _import_package() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    _import_package()
    importlib.import_module(NAME + ".serve").main()
