#!/bin/sh
# Linker driver for cargo. Host programs are linked statically (.cargo/config.toml)
# with lld over the libraries in .toolchain/ (toolchain.sh). Build scripts and
# procedural macros are linked here too, without -static: they run on this machine.
case " $* " in
*" -static-pie "*) ;;
*) exec cc "$@" ;;
esac
# The code is position-independent, because libhartline.so has it too. The programs are
# not: LLVM has a hundred thousand addresses to relocate at each start.
for argument; do
    shift
    [ "$argument" = -static-pie ] && set -- "$@" -static -no-pie || set -- "$@" "$argument"
done
# Unwind tables are found through the program header, so nothing needs to register
# them. Registration reads all of them at every start, a fifth of the time until
# main.
unwind="-Wl,--defsym=__register_frame_info=0 -Wl,--defsym=__deregister_frame_info=0"
root=$(cd "$(dirname "$0")/../.." && pwd)
lib=$root/.toolchain/usr/lib
exec cc --sysroot="$root/.toolchain" -fuse-ld=lld \
    -L"$lib/gcc/x86_64-linux-gnu/14" -L"$lib/x86_64-linux-gnu" $unwind "$@"
