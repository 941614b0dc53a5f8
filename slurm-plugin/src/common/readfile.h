/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/*
 * Reads one small file whole, with an upper limit, so that no file, however
 * large or odd, can make a submit command or a prolog take long or grow.
 */
#ifndef KERNEL_PROFILE_READFILE_H
#define KERNEL_PROFILE_READFILE_H

#include <stddef.h>

/*
 * Returns 0 and a buffer that the caller frees (a NUL follows the *size
 * bytes), or an errno: EFBIG when the file has more than limit bytes, EINVAL
 * when it is not a regular file.
 */
int read_file(const char *path, size_t limit, char **data, size_t *size);

#endif
