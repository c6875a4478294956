from __future__ import annotations

import pytest

from arriero.base.errors import UsageError
from arriero.base.redact import Redactor
from arriero.base.words import ReportFormat
from arriero.jobs.share import Document, render
from tests.examples import example_diagnosis, example_explanation, example_verification
from tests.report.plans import example

DOCUMENTS = (example_diagnosis(), example_explanation(), example_verification(), example())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda doc: type(doc).__name__)
@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_every_record_can_be_shared_without_its_paths(
    document: Document, form: ReportFormat
) -> None:
    text = render(document, form, Redactor())
    assert "b10434" in text
    assert "/home/ana" not in text


def test_only_a_diagnosis_makes_an_issue() -> None:
    with pytest.raises(UsageError, match="no upstream report of a plan"):
        render(example(), ReportFormat.UPSTREAM, Redactor())
