"""Looking at a PDF as a person and a gate do: the text and the QR codes of its pages."""

from dataclasses import dataclass

import pypdfium2
import zxingcpp

PIXELS_PER_POINT = 2


@dataclass(frozen=True)
class Page:
    text: str
    codes: list[str]


def pages(content: bytes) -> list[Page]:
    document = pypdfium2.PdfDocument(content)
    try:
        return [_page(document[number]) for number in range(len(document))]
    finally:
        document.close()


def _page(page: pypdfium2.PdfPage) -> Page:
    picture = page.render(scale=PIXELS_PER_POINT, grayscale=True)
    pixels = memoryview(bytes(picture.buffer)).cast("B", (picture.height, picture.stride))
    text = page.get_textpage().get_text_range().replace("\r\n", "\n")
    return Page(text, [found.text for found in zxingcpp.read_barcodes(pixels)])
