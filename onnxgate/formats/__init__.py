"""Output formats of reports, and the table of all report formats by name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxgate.core.report import Report


@dataclass(frozen=True, slots=True)
class ReportFormat:
    """A report format. Its module is imported on first use, because the formats depend on different libraries."""

    module: str
    function: str = "format"
    is_data: bool = False  # machine-readable: nothing else may be written to the same stream
    has_drawings: bool = False  # includes the drawings of a report

    def render(self, report: Report) -> str:
        """Render a report in this format."""
        text: str = getattr(importlib.import_module(f"onnxgate.{self.module}"), self.function)(report)
        return text


RENDERERS = {
    "text": ReportFormat("formats.text"),
    "json": ReportFormat("core.report_json", is_data=True, has_drawings=True),
    "html": ReportFormat("formats.html", is_data=True, has_drawings=True),
    "markdown": ReportFormat("formats.markdown", has_drawings=True),
    "github": ReportFormat("formats.github"),
    "summary": ReportFormat("formats.markdown", "format_summary", has_drawings=True),
    "comment": ReportFormat("formats.markdown.pull_request_comment", "format_comment", has_drawings=True),
    "sarif": ReportFormat("formats.sarif", is_data=True),
    "junit": ReportFormat("formats.junit", is_data=True),
    "gitlab": ReportFormat("formats.gitlab", is_data=True),
}
"""Report formats by name, in the order in which `--help` lists them."""
