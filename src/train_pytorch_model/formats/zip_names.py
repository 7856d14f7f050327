"""Names in a zip: in UTF-8, which few archives say, or in an encoding of the Windows that has made it."""

import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from zipfile import ZipInfo

from train_pytorch_model.formats.reading import MalformedFileError

UTF8_FLAG = 0x800
UNICODE_PATH = 0x7075  # Info-ZIP's extra field: version, CRC of the name, the name in UTF-8
CJK = r"\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e"
# Encoding → the characters of its names besides ASCII, in the order in which they are tried. What is valid in
# several is rarely plausible in more than one: half-width kana, box drawing and rare ideographs are left out.
ENCODINGS: Mapping[str, str] = {
    "cp932": rf"\u3041-\u30ff{CJK}",
    "cp949": r"\uac00-\ud7a3",
    "gb2312": CJK,
    "big5": CJK,
    "cp866": "\u0410-\u044f\u0401\u0451",
    "cp850": r"\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff",
}
MIN_HANGUL = 6  # different ones: a few Korean syllables may as well be Chinese
MIN_CYRILLIC = 3  # letters of the longest word
WORD = re.compile(r"[^\W\d_]+")


def decode_names(members: Sequence[ZipInfo]) -> tuple[list[str], str]:
    """Return the names of all members, and the encoding if it was guessed. Raises `MalformedFileError`."""
    names = [_unicode_name(info) for info in members]
    raw = [info.orig_filename.encode("cp437") for info, name in zip(members, names, strict=True) if not name]
    encoding = next((each for each in ("ascii", "utf-8", *ENCODINGS) if _is_plausible(each, raw)), None)
    if encoding is None:
        raise MalformedFileError(
            "its names are in an unknown encoding. Unpack it where it was made, or with `unzip -O ENCODING`,"
            " and name the folder."
        )
    decoded = (name.decode(encoding) for name in raw)
    return [name or next(decoded) for name in names], "" if encoding in ("ascii", "utf-8") else encoding


def _unicode_name(info: ZipInfo) -> str:
    """Return a member's name if it is known to be right; else an empty text."""
    if info.flag_bits & UTF8_FLAG:
        return info.orig_filename
    extra, raw = info.extra, info.orig_filename.encode("cp437")
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == UNICODE_PATH and extra[5:9] == struct.pack("<I", zlib.crc32(raw)):
            return extra[9 : 4 + size].decode(errors="replace")
        extra = extra[4 + size :]
    return ""


def _is_plausible(encoding: str, raw: Iterable[bytes]) -> bool:
    try:
        text = "\n".join(name.decode(encoding) for name in raw)
    except UnicodeError:
        return False
    characters = ENCODINGS.get(encoding)
    if characters is None:
        return True
    letters = {letter for letter in text if not letter.isascii()}
    if not re.fullmatch(f"[{characters}]*", "".join(letters)):
        return False
    if encoding == "cp949":
        return len(letters) >= MIN_HANGUL
    if encoding == "cp866":  # the same bytes are accented letters, which stand among others of their word
        words = [word for word in WORD.findall(text) if not word.isascii()]
        is_mixed = any(any(map(str.isascii, word)) for word in words)
        return not is_mixed and any(len(word) >= MIN_CYRILLIC for word in words)
    return True
