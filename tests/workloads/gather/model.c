/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

struct content *content_new(void)
{
	struct content *content = calloc(1, sizeof(*content));

	if (content)
		content->bytes = calloc(1, MODEL_MAX);
	if (!content || !content->bytes)
		fail("no memory");
	return content;
}

void content_resize(struct content *content, size_t size)
{
	if (size > MODEL_MAX)
		fail("the model has no room for %zu bytes", size);
	if (size < content->size)
		memset(content->bytes + size, 0, content->size - size);
	content->size = size;
}

void content_write(struct content *content, size_t at, const void *data,
		   size_t count)
{
	if (!count)
		return;
	if (at + count > content->size)
		content_resize(content, at + count);
	memcpy(content->bytes + at, data, count);
}

void content_zero(struct content *content, size_t at, size_t count)
{
	memset(content->bytes + at, 0, content_have(content, at, count));
}

size_t content_have(const struct content *content, size_t at, size_t count)
{
	size_t rest = at < content->size ? content->size - at : 0;

	return count < rest ? count : rest;
}

void opened_write(struct opened *opened, const void *data, size_t count)
{
	if (opened->append)
		opened->position = opened->content->size;
	content_write(opened->content, opened->position, data, count);
	opened->position += count;
}
