#!/bin/sh
# Runs a program that Cargo built with libtorch's libraries on its search path: `with-libtorch.sh PROGRAM [ARGS…]`.
# The choice follows torch-sys: LIBTORCH_USE_PYTORCH, then LIBTORCH_LIB, then LIBTORCH.

if [ -n "${LIBTORCH_USE_PYTORCH+set}" ]; then
    python=python3
    [ -n "${VIRTUAL_ENV+set}" ] && python=python
    # Finds the package without importing it, which would take seconds.
    libraries=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0] + "/lib")' 2>/dev/null)
else
    libraries=${LIBTORCH_LIB:-${LIBTORCH:-}}
    libraries=${libraries:+$libraries/lib}
fi

if [ -n "$libraries" ]; then
    case $(uname -s) in
    Darwin)
        export DYLD_LIBRARY_PATH="$libraries${DYLD_LIBRARY_PATH:+:$DYLD_LIBRARY_PATH}"
        ;;
    *)
        export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        ;;
    esac
fi

# rustdoc tells a program of merged doctests where it lies, so that each test gets a process of its own,
# but only when no runner stands between them.
case $1 in
*/merged_doctest_*) export RUSTDOC_DOCTEST_BIN_PATH="$1" ;;
esac

exec "$@"
