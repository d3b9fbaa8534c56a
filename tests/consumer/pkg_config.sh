#!/usr/bin/env bash
# pkg_config.sh shared|static PREFIX COMPILER PKG_CONFIG: builds and runs main.cc by pkg-config alone.
set -euo pipefail
kind=$1 prefix=$2 compiler=$3 pkg_config=$4
here=$(dirname "${BASH_SOURCE[0]}")

pc_file=$(find "$prefix" -name pagekv.pc)
export PKG_CONFIG_PATH=${pc_file%/*}
query=(--cflags --libs)
[[ $kind == shared ]] || query+=(--static)
flags=$("$pkg_config" "${query[@]}" pagekv)

echo "$flags"
# shellcheck disable=SC2086 # flags are words
"$compiler" -std=c++20 "$here/main.cc" $flags -o "$prefix/consumer-$kind"
LD_LIBRARY_PATH=$("$pkg_config" --variable=libdir pagekv) "$prefix/consumer-$kind"
