/* The input: made before the run, read in it as the model reads. */
#include <stdio.h>
#include <string.h>

#include "digest.h"
#include "files.h"

/* Content of a bin file in pieces; the same seed gives the same bytes. */
static void fill_chunk(uint64_t *stream, unsigned char *chunk, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
		uint64_t value = mix64(stream);
		size_t left = size - at;

		memcpy(chunk + at, &value,
		       left < sizeof(value) ? left : sizeof(value));
	}
}

static uint64_t bin_stream(const struct replay *replay, unsigned int bin)
{
	return replay->seed * BIN_FILES + bin;
}

static size_t chunk_size(size_t left)
{
	return left < READ_CHUNK ? left : READ_CHUNK;
}

static bool make_bin(const struct replay *replay, unsigned int bin)
{
	uint64_t stream = bin_stream(replay, bin);
	size_t size = bin_size(&replay->layout, bin);
	unsigned char chunk[READ_CHUNK];
	char path[PATH_BYTES];
	bool ok = true;
	int fd;

	if (!name_bin(replay, bin, path))
		return false;
	fd = file_create(path);
	if (fd < 0)
		return false;
	for (size_t at = 0; ok && at < size; at += READ_CHUNK) {
		fill_chunk(&stream, chunk, READ_CHUNK);
		ok = file_fill(fd, chunk, chunk_size(size - at), at, path);
	}
	return file_close(fd, path) && ok;
}

static void param_line(const struct replay *replay, unsigned int line,
		       char text[PARAM_LINE + 1])
{
	uint64_t stream = replay->seed + line;
	int length = snprintf(text, PARAM_LINE, " parameter_%03u = %016llx,",
			      line, (unsigned long long)mix64(&stream));

	memset(text + length, ' ', (size_t)(PARAM_LINE - length));
	text[PARAM_LINE - 1] = '\n';
}

static bool make_param(const struct replay *replay)
{
	char text[PARAM_LINE + 1];
	char path[PATH_BYTES];
	bool ok = true;
	int fd;

	if (!name_param(replay, path))
		return false;
	fd = file_create(path);
	if (fd < 0)
		return false;
	for (unsigned int line = 0; ok && line < replay->layout.params;
	     line++) {
		param_line(replay, line, text);
		ok = file_fill(fd, text, PARAM_LINE,
			       (uint64_t)line * PARAM_LINE, path);
	}
	return file_close(fd, path) && ok;
}

bool replay_prepare(struct replay *replay)
{
	for (unsigned int bin = 0; bin < BIN_FILES; bin++)
		if (!make_bin(replay, bin))
			return false;
	return make_param(replay);
}

static bool read_bin(struct replay *replay, unsigned int bin)
{
	struct totals *count = &replay->issued[PATTERN_BIN];
	uint64_t stream = bin_stream(replay, bin);
	size_t size = bin_size(&replay->layout, bin);
	unsigned char wanted[READ_CHUNK];
	unsigned char chunk[READ_CHUNK];
	char path[PATH_BYTES];
	bool ok = true;
	int fd;

	if (!name_bin(replay, bin, path))
		return false;
	fd = file_open(path);
	if (fd < 0)
		return false;
	count->files++;
	for (size_t at = 0; ok && at < size; at += READ_CHUNK) {
		size_t part = chunk_size(size - at);

		ok = file_read(fd, chunk, part, count, path);
		fill_chunk(&stream, wanted, READ_CHUNK);
		if (ok && memcmp(chunk, wanted, part) != 0)
			ok = complain("read %s: wrong content near byte %zu",
				      path, at);
	}
	return file_close(fd, path) && ok;
}

static bool read_param(struct replay *replay)
{
	struct totals *count = &replay->issued[PATTERN_PARAM];
	char wanted[PARAM_LINE + 1];
	char text[PARAM_LINE];
	char path[PATH_BYTES];
	bool ok = true;
	int fd;

	if (!name_param(replay, path))
		return false;
	fd = file_open(path);
	if (fd < 0)
		return false;
	count->files++;
	for (unsigned int line = 0; ok && line < replay->layout.params;
	     line++) {
		ok = file_read(fd, text, PARAM_LINE, count, path);
		param_line(replay, line, wanted);
		if (ok && memcmp(text, wanted, PARAM_LINE) != 0)
			ok = complain("read %s: wrong content in line %u", path,
				      line + 1);
	}
	return file_close(fd, path) && ok;
}

bool replay_input(struct replay *replay)
{
	if (!read_param(replay))
		return false;
	for (unsigned int bin = 0; bin < BIN_FILES; bin++)
		if (!read_bin(replay, bin))
			return false;
	return true;
}
