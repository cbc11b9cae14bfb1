#!/usr/bin/env python3
"""Draws the sheet of characters that `llava-cli` labels its drawings and plots with.

    scripts/make_letters.py [--font /usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf] [--out src/bin/llava-cli/bitmap/letters.png]

Needs Pillow and the DejaVu fonts (Debian: fonts-dejavu-core). Needed again only when face or size changes.
"""
import argparse
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

FIRST, LAST = 32, 126
SIZE = 12
# advance and height of a character in pixels; the baseline lies BASE below the top
WIDTH, HEIGHT, BASE = 7, 15, 12


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--font", type=Path, default=Path("/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"))
    args.add_argument("--out", type=Path, default=Path("src/bin/llava-cli/bitmap/letters.png"))
    args = args.parse_args()
    face = ImageFont.truetype(str(args.font), SIZE)
    sheet = Image.new("L", (WIDTH * (LAST - FIRST + 1), HEIGHT))
    for code in range(FIRST, LAST + 1):
        cell = Image.new("L", (WIDTH, HEIGHT))
        # full ink on no ink: the samples are the coverage
        ImageDraw.Draw(cell).text((0, BASE), chr(code), font=face, fill=255, anchor="ls")
        sheet.paste(cell, ((code - FIRST) * WIDTH, 0))
    sheet.save(args.out, optimize=True)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
