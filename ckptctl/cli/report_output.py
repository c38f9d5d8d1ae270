"""How `validate` answers: the chosen format of a report, and of what is told about rules."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from ckptctl.cli.answer import emit
from ckptctl.cli.options import OutputFormat, ReportFormat, Settings, demand_format

if TYPE_CHECKING:
    from ckptctl.domain.finding import Report
    from ckptctl.errors import ExitCode


def write_report(settings: Settings, report: Report, code: ExitCode, *, strict: bool) -> None:
    """Write a report in the format of the settings; `code` is what the command ends with. Raises as `emit`."""
    emit(settings, _report_as(settings, report, code, strict=strict))


def _report_as(settings: Settings, report: Report, code: ExitCode, *, strict: bool) -> str:
    match ReportFormat(settings.format):
        case ReportFormat.JSON:
            from ckptctl.render.machine import to_json

            return to_json(report)
        case ReportFormat.JUNIT:
            from ckptctl.render.report_junit import report_junit

            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
            return report_junit(report, strict=strict, at=at, host=socket.gethostname())
        case ReportFormat.SARIF:
            from ckptctl.render.report_sarif import report_sarif

            return report_sarif(report, code)
        case ReportFormat.GITHUB:
            from ckptctl.render.report_github import report_github

            return report_github(report, os.getcwd())  # noqa: PTH109 - str paths
        case ReportFormat.TEXT:
            from ckptctl.render.report_text import report_text

            return report_text(report, verbose=settings.verbose)


def write_rules(settings: Settings, explain: str | None) -> None:
    """Write what is known of one rule, or the list of all. Raises UsageError for a format that only reports have."""
    from ckptctl.render.catalogue import explain_rule, list_rules

    demand_format(settings.format, OutputFormat)
    as_json = settings.format == OutputFormat.JSON
    emit(settings, explain_rule(explain, as_json=as_json) if explain is not None else list_rules(as_json=as_json))
