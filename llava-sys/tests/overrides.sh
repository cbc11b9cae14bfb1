#!/usr/bin/env bash
# Builds llava-sys in three ways that a user may choose, against the native libraries of an earlier build in this checkout
# (so that no second full build of ggml and llama is needed), and runs its link test with each:
#   1. LLAMA_CPP_LIB_DIR + LLAMA_CPP_INCLUDE_DIR: prebuilt libraries, libmtmd from the pin;
#   2. the same, with libmtmd from a source given by LLAMA_CPP_DIR;
#   3. refusals: half an override, a source of another interface, a library that is not there.
# And: building again does nothing, and touching a shim file compiles that file alone.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
native=${LLAVA_NATIVE_DIR:-$PWD/target/native}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LLAVA_BUILD_VERBOSE=1 CARGO_TERM_COLOR=never CARGO_TARGET_DIR=$target/overrides

fail() {
    printf 'overrides: %s\n' "$1" >&2
    [ ! -f "$work/log" ] || tail -40 "$work/log" >&2
    exit 1
}
# cargo, its words in $work/log
build() { cargo "$@" >"$work/log" 2>&1; }
said() { grep -qF -- "$1" "$work/log" || fail "expected the build to say: $1"; }
unsaid() { ! grep -qF -- "$1" "$work/log" || fail "the build should not have said: $1"; }
refused() {
    if build check -p llava-sys; then fail "should have been refused: $1"; fi
    said "$1"
}

# The finished native build with default features: the stamp of each lists its options.
libraries=
for stamp in "$native"/*/stamp; do
    [ -f "$stamp" ] || continue
    if grep -qx 'GGML_AVX512=OFF\|GGML_CPU_ARM_ARCH=armv8.2-a+dotprod' "$stamp" && ! grep -qE \
        '^(BUILD_SHARED_LIBS|GGML_(NATIVE|CUDA|METAL|VULKAN|BLAS|RPC|SANITIZE_[A-Z]+))=ON|^GGML_AVX2=OFF' "$stamp"; then
        libraries=$(dirname "$stamp")/lib
    fi
done
[ -n "$libraries" ] || fail "no finished native build under $native: run \`make test\` first"
source=$(sed -n 2p "$libraries/../stamp")
export LLAVA_NATIVE_DIR=$CARGO_TARGET_DIR/native

printf 'prebuilt libraries, libmtmd from the pin\n'
export LLAMA_CPP_LIB_DIR=$libraries LLAMA_CPP_INCLUDE_DIR=$source/include:$source/ggml/include
build test -p llava-sys --lib --tests || fail 'the build failed'
said "ggml and llama from $libraries"
unsaid 'running: cmake'

printf 'building again does nothing\n'
build test -p llava-sys --lib --tests || fail 'the second build failed'
unsaid 'Compiling'

printf 'touching a shim file compiles that file alone\n'
touch llava-sys/shim/llava_shim.cpp
build test -p llava-sys --lib --tests || fail 'the build after a touch failed'
said 'shim: 1 of 4 objects compiled'
said 'libmtmd: 0 of'

printf 'prebuilt libraries, libmtmd from a source given by hand\n'
mkdir "$work/llama.cpp"
cp -R "$source/." "$work/llama.cpp"
chmod -R u+w "$work/llama.cpp"
export LLAMA_CPP_DIR=$work/llama.cpp
build test -p llava-sys --lib --tests || fail 'the build failed'
said "llama.cpp local"
said "in $work/llama.cpp"

printf 'a comment in a header changes nothing, code does\n'
printf '\n// a comment\n' >>"$work/llama.cpp/tools/mtmd/mtmd.h"
build check -p llava-sys || fail 'a comment was taken for a change of the interface'
printf '\nMTMD_API int mtmd_something_new(void);\n' >>"$work/llama.cpp/tools/mtmd/mtmd.h"
refused 'mtmd.h differs from the header that the committed bindings'
cp "$source/tools/mtmd/mtmd.h" "$work/llama.cpp/tools/mtmd/mtmd.h"

printf 'refusals\n'
sed -i.old 's/set(LLAMA_VERSION_MINOR *[0-9]*)/set(LLAMA_VERSION_MINOR 999)/' "$work/llama.cpp/CMakeLists.txt"
refused '.999.0 but the bindings were made from version'
rm "$work/llama.cpp/tools/mtmd/clip.cpp"
refused '`tools/mtmd/clip.cpp` not found'
unset LLAMA_CPP_DIR
LLAMA_CPP_INCLUDE_DIR='' refused 'belong together'
LLAMA_CPP_LIB_DIR=$work refused '`libllama.a` not found'
LLAMA_CPP_DIR=relative/path refused 'give an absolute path'
LLAVA_SANITIZE=everything refused 'is none of address, undefined, thread'
unset LLAMA_CPP_LIB_DIR LLAMA_CPP_INCLUDE_DIR
LLAVA_NATIVE_DIR=$work/native CMAKE=$work/no-cmake refused 'building llama.cpp needs CMake'
for pair in native,portable dynamic-backends,native dynamic-backends,portable metal; do
    [ "$pair" != metal ] || [ "$(uname)" != Darwin ] || continue
    if build check -p llava-sys --features "$pair"; then fail "should have been refused: features $pair"; fi
    grep -qE 'contradict each other|chooses a CPU variant|needs an Apple target' "$work/log" || fail "features $pair: why?"
done
printf 'overrides: all fine\n'
