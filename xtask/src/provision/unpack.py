"""Takes files out of a wheel: unpack.py WHEEL FOLDER (FROM TO)...

FROM names one entry, or with a slash at its end every entry below it; TO is where it goes in FOLDER ("" for
FOLDER itself). Reading an entry to its end checks its CRC.
"""

import os
import shutil
import sys
import zipfile

wheel, folder, *pairs = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    files = [entry for entry in archive.infolist() if not entry.is_dir()]
    for source, target in zip(pairs[::2], pairs[1::2]):
        if source.endswith("/") or not source:
            chosen = [(entry, os.path.join(target, entry.filename[len(source) :])) for entry in files
                      if entry.filename.startswith(source)]
        else:
            chosen = [(entry, target) for entry in files if entry.filename == source]
        if not chosen:
            sys.exit(f"{os.path.basename(wheel)} has no {source}")
        for entry, name in chosen:
            path = os.path.normpath(os.path.join(folder, name))
            if not path.startswith(os.path.join(os.path.normpath(folder), "")):
                sys.exit(f"{os.path.basename(wheel)} has an entry outside its folder: {entry.filename}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(entry) as reader, open(path, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
