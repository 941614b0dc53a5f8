/* The end of the run: what the files hold, and how many calls it took. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

static bool verify_file(const char *path, const struct written *wanted)
{
	struct written found;

	if (!file_digest(path, &found))
		return false;
	if (found.size != wanted->size)
		return complain("%s: %llu bytes, %llu were written", path,
				(unsigned long long)found.size,
				(unsigned long long)wanted->size);
	if (found.digest != wanted->digest)
		return complain("%s: the content is not what was written",
				path);
	return true;
}

static bool verify_field(const struct replay *replay, unsigned int field,
			 unsigned int tile)
{
	unsigned int file = field * TILES + tile;
	char path[PATH_BYTES];

	return name_field(replay, field, tile, "data", path) &&
	       verify_file(path, &replay->data[file]) &&
	       name_field(replay, field, tile, "meta", path) &&
	       verify_file(path, &replay->meta[file]);
}

static bool verify_count(const char *pattern, const char *what, uint64_t issued,
			 uint64_t wanted)
{
	if (issued == wanted)
		return true;
	return complain("%s: %llu %s, %llu are due", pattern,
			(unsigned long long)issued, what,
			(unsigned long long)wanted);
}

static bool verify_counts(const struct replay *replay)
{
	struct totals due[PATTERNS];
	bool ok = true;

	layout_totals(&replay->layout, due);
	due[PATTERN_LOG].bytes = replay->log.size;
	for (enum pattern p = 0; p < PATTERNS; p++) {
		const struct totals *issued = &replay->issued[p];
		const char *name = pattern_name(p);

		ok &= verify_count(name, "files", issued->files, due[p].files);
		ok &= verify_count(name, "reads", issued->reads, due[p].reads);
		ok &= verify_count(name, "writes", issued->writes,
				   due[p].writes);
		ok &= verify_count(name, "seeks", issued->seeks, due[p].seeks);
		ok &= verify_count(name, "bytes", issued->bytes, due[p].bytes);
	}
	return ok;
}

bool replay_verify(struct replay *replay)
{
	char path[PATH_BYTES];
	bool ok = verify_counts(replay);

	ok = name_log(replay, path) && verify_file(path, &replay->log) && ok;
	for (unsigned int f = 0; f < layout_fields(&replay->layout); f++)
		for (unsigned int tile = 0; tile < TILES; tile++)
			ok = verify_field(replay, f, tile) && ok;
	return ok;
}

static bool remove_file(bool named, const char *path)
{
	if (!named)
		return false;
	if (unlink(path) == 0)
		return true;
	return complain("remove %s: %s", path, strerror(errno));
}

bool replay_remove(const struct replay *replay)
{
	char path[PATH_BYTES];
	bool ok = true;

	for (unsigned int bin = 0; bin < BIN_FILES; bin++)
		ok &= remove_file(name_bin(replay, bin, path), path);
	ok &= remove_file(name_param(replay, path), path);
	ok &= remove_file(name_log(replay, path), path);
	for (unsigned int f = 0; f < layout_fields(&replay->layout); f++)
		for (unsigned int tile = 0; tile < TILES; tile++) {
			ok &= remove_file(
				name_field(replay, f, tile, "data", path),
				path);
			ok &= remove_file(
				name_field(replay, f, tile, "meta", path),
				path);
		}
	return ok;
}
