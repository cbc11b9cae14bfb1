#!/usr/bin/env python3
"""Draws the sheet of letters and digits that `llava-cli eval` writes its pictures with.

    scripts/make_glyphs.py [--fonts /usr/share/fonts/truetype/dejavu] [--out src/bin/llava-cli/eval/generator/glyphs.png]

Needs Pillow and the DejaVu fonts (Debian: fonts-dejavu-core). Needed again only when faces or sizes change.
"""
import argparse
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, features

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
CELL = 56
FONTS = ["DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSansMono-Bold"]
FACES = [(font, 24) for font in FONTS] + [(font, 32) for font in FONTS] + [(FONTS[0], 16), (FONTS[0], 48)]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts/truetype/dejavu"))
    args.add_argument("--out", type=Path, default=Path("src/bin/llava-cli/eval/generator/glyphs.png"))
    args = args.parse_args()
    sheet = Image.new("L", (CELL * len(LETTERS), CELL * len(FACES)))
    for row, (font, size) in enumerate(FACES):
        face = ImageFont.truetype(str(args.fonts / f"{font}.ttf"), size)
        for column, letter in enumerate(LETTERS):
            cell = Image.new("L", (CELL, CELL))
            # full ink on no ink: the samples are the coverage
            ImageDraw.Draw(cell).text((CELL // 2, CELL // 2), letter, font=face, fill=255, anchor="mm")
            sheet.paste(cell, (column * CELL, row * CELL))
    sheet.save(args.out, optimize=True)
    print(f"{args.out}: {args.out.stat().st_size} bytes, {len(FACES)} faces, layout {features.check('raqm') and 'raqm' or 'basic'}")


if __name__ == "__main__":
    main()
