"""The IR stamp, lowered where nothing in the file needs a newer one."""

from __future__ import annotations

from onnxgate.model.wire import VARINT, varint_bytes
from onnxgate.repair.fix import Asked, Change, Left
from onnxgate.repair.parts import Part
from onnxgate.repair.rewriting import Found, rewritten
from onnxgate.runtimes.worker.exporters.stamp import needed


class IrVersion:
    """Stamps down to the newest IR version that all runtimes of the model read and the config allows."""

    name = "ir-version"
    rules = frozenset({"ir-version-too-new", "ir-version-mismatch"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """The same file with another number in it."""
        highest, now = asked.bounds.ir_version, asked.proto.ir_version
        if highest is None or now <= highest:
            return None
        least = needed(asked.proto)
        if least > highest:
            said = f"what is in it needs IR version {least}, and {highest} is the newest that is allowed"
            return Left(said, "export at an older opset, or raise the target")

        def lowered(_: Found) -> list[Part]:
            return [varint_bytes(1 << 3 | VARINT) + varint_bytes(highest)]

        parts = rewritten(asked.path, {("ModelProto", "ir_version"): lowered})
        needs = f"it needs no more than {least}" if least < highest else "it needs no more"
        return Change(parts, (f"IR version {now} becomes {highest}: {needs}",))
