#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the dkms.conf of this folder says for a kernel: words, each ended by a NUL, as KEY VALUE.
# shellcheck disable=SC1091,SC2034,SC2153,SC2154
kernelver=$1 kernel_source_dir=$2 arch=x86_64 dkms_tree=$3
source_tree=$dkms_tree
. ./dkms.conf >&2 || exit 1
say() { printf '%s\0%s\0' "$1" "$2"; }
say name "$PACKAGE_NAME"
say version "$PACKAGE_VERSION"
say before "$PRE_BUILD"
say kernels "$BUILD_EXCLUSIVE_KERNEL"
say least "$BUILD_EXCLUSIVE_KERNEL_MIN"
say most "$BUILD_EXCLUSIVE_KERNEL_MAX"
say architectures "$BUILD_EXCLUSIVE_ARCH"
say options "$BUILD_EXCLUSIVE_CONFIG"
say depends "${BUILD_DEPENDS[*]}"
# The last command whose pattern fits the kernel wins; the first has none.
make=${MAKE[0]}
for i in "${!MAKE[@]}"; do
	[ "$i" -gt 0 ] && [[ $kernelver =~ ${MAKE_MATCH[$i]} ]] && make=${MAKE[$i]}
done
say make "$make"
for i in "${!PATCH[@]}"; do
	[[ -z ${PATCH_MATCH[$i]} || $kernelver =~ ${PATCH_MATCH[$i]} ]] && say patch "${PATCH[$i]}"
done
for i in "${!BUILT_MODULE_NAME[@]}"; do
	say module "${BUILT_MODULE_LOCATION[$i]%/}/${BUILT_MODULE_NAME[$i]}"
done
exit 0
