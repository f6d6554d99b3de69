"""Valid arguments of operators for probe models: shapes of inputs, parameters, and values of attributes.

An entry describes the newest version of an operator; `probe_models` removes what an older version does not have. Inputs
that older versions have as attributes, such as `axes`, have the same name there.
"""

from __future__ import annotations

from collections.abc import Mapping

from harvest.probing.catalogue.elementwise import ELEMENTWISE
from harvest.probing.catalogue.entries import Entry
from harvest.probing.catalogue.layers import LAYERS
from harvest.probing.catalogue.tensors import TENSORS

CATALOGUE: Mapping[str, Entry] = {**ELEMENTWISE, **LAYERS, **TENSORS}
