#!/bin/sh
# Tracks a cache directory with DVC, and restores it.
#
# Run: sh examples/recipes/dvc.sh CACHE, in the folder that contains CACHE
set -eu
cache=$1

dvc init --no-scm # in a git checkout: `dvc init`
# Records of processes are no rows. Without this line, a program that only reads would change the version.
echo 'sessions/' >> .dvcignore

# No program may have the cache open here: DVC records the files that it finds, and puts links or copies in their place.
dvc add "$cache"
tcx verify "$cache"

# Elsewhere, `dvc pull` gets the files; here the copy in .dvc/cache is enough. Again, no program may have the cache open:
# DVC removes every file that the version does not have, and so the rows that were added since.
rm -r "$cache"
dvc checkout "$cache.dvc"
tcx verify "$cache" # reads every byte
