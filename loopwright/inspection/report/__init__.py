"""Report pages of logs: their data, and the page as one file of HTML."""

from loopwright.inspection.report.collect import TunedKernels, model_page, page_of
from loopwright.inspection.report.html import PAGE, report_html
from loopwright.inspection.report.page_data import Page

__all__ = ["PAGE", "Page", "TunedKernels", "model_page", "page_of", "report_html"]
