"""Puts stubs of the CUDA libraries beside those of torch: `python cuda_stubs.py FOLDER`.

The wheel of torch on the package index is linked with CUDA, whose packages are gigabytes. Tests on a machine without a GPU need
none of it, but the loader needs libraries of these names, with these symbols and versions. In a stub, every function returns 35,
which is the error "the driver is insufficient": torch then finds no GPU. Those that describe an error return a text.
"""

import os
import re
import subprocess
import sys
import tempfile

# The libraries of the system, which are there.
SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)\.so|ld-linux)")
# The symbols without a version that are those of CUDA libraries; the others are those of Python and of C++.
UNVERSIONED = re.compile(r"_?_?(cu|nv|nccl)")
RETURNS_35 = "mov $35, %eax\nret\n"
# Torch makes its exception of what these return.
DESCRIBES = re.compile(r"Get(Error|Status)(String|Name)$")
RETURNS_TEXT = 'lea 0f(%rip), %rax\nret\n0: .asciz "a stub of CUDA has no GPU"\n'


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library: str) -> set[str]:
    return set(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library)))


def symbols(library: str) -> tuple[set[str], set[str]]:
    """The symbols that a library defines, and those that it wants, these with their versions."""
    defined, wanted = set(), set()
    for line in output("nm", "-D", library).splitlines():
        *_, kind, name = line.split()
        if kind == "U":
            wanted.add(name)
        elif kind not in "wv":
            defined.add(name.split("@")[0])
    return defined, wanted


def versions(library: str) -> dict[str, str]:
    """Which library has symbols of which version."""
    found, file = {}, ""
    for line in output("readelf", "-V", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif file and (match := re.search(r"Name: (\S+)\s+Flags", line)):
            found[match[1]] = file
    return found


def labels(names: list[str]) -> str:
    return "".join(f".globl {name}\n.type {name}, @function\n{name}:\n" for name in names)


def stub(folder: str, library: str, by_version: dict[str, set[str]]) -> None:
    """Compiles a library with these symbols."""
    names = sorted(name for symbols in by_version.values() for name in symbols)
    with tempfile.TemporaryDirectory() as scratch:
        code, script = os.path.join(scratch, "stub.s"), os.path.join(scratch, "versions")
        texts = [name for name in names if DESCRIBES.search(name)]
        others = [name for name in names if name not in texts]
        with open(code, "w") as file:
            file.write(f'.text\n{labels(texts)}{RETURNS_TEXT}{labels(others)}{RETURNS_35}.section .note.GNU-stack,"",@progbits\n')
        with open(script, "w") as file:
            for version, symbols in by_version.items():
                if version:
                    file.write(f"{version} {{ global: {' '.join(f'{name};' for name in sorted(symbols))} }};\n")
        arguments = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", "-o", os.path.join(folder, library), code]
        if any(by_version):
            arguments.insert(1, f"-Wl,--version-script={script}")
        subprocess.run(arguments, check=True)


def main(folder: str) -> None:
    own = [os.path.join(folder, name) for name in os.listdir(folder) if ".so" in name]
    missing = set().union(*(needed(library) for library in own)) - {os.path.basename(library) for library in own}
    missing = {library for library in missing if not SYSTEM.match(library)}
    of_version, defined, wanted = {}, set(), set()
    for library in own:
        of_version.update(versions(library))
        there, absent = symbols(library)
        defined |= there
        wanted |= absent
    stubs: dict[str, dict[str, set[str]]] = {library: {} for library in missing}
    first = min(missing, default="")
    for name, _, version in (symbol.partition("@") for symbol in wanted):
        version = version.lstrip("@")
        if name in defined:
            continue
        library = of_version.get(version, "") if version else first if UNVERSIONED.match(name) else ""
        if library in stubs:
            stubs[library].setdefault(version, set()).add(name)
    for library, by_version in stubs.items():
        stub(folder, library, by_version)
    print(f"{len(stubs)} stubs")


if __name__ == "__main__":
    main(sys.argv[1])
