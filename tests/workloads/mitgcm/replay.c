#define _GNU_SOURCE
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "digest.h"
#include "files.h"

bool replay_init(struct replay *replay, const char *dir, uint64_t seed,
		 unsigned int scale)
{
	size_t files;

	*replay = (struct replay){
		.dir = dir,
		.seed = seed,
		.layout = layout_make(scale),
		.log_fd = -1,
		.log = { DIGEST_START, 0 },
	};
	files = (size_t)layout_fields(&replay->layout) * TILES;
	replay->data = calloc(files, sizeof(*replay->data));
	replay->meta = calloc(files, sizeof(*replay->meta));
	if (!replay->data || !replay->meta)
		return complain("no memory for %zu files", files);
	for (size_t i = 0; i < files; i++) {
		replay->data[i].digest = DIGEST_START;
		replay->meta[i].digest = DIGEST_START;
	}
	return true;
}

void replay_free(struct replay *replay)
{
	if (replay->log_fd >= 0)
		close(replay->log_fd);
	free(replay->data);
	free(replay->meta);
}

/* One row of a tile in the precision of the file. Levels beyond the grid's are
 * other quantities of the model: the same state in another unit. */
static void encode_row(const struct ocean *ocean, enum field_kind kind,
		       unsigned int level, unsigned int y, unsigned int x,
		       unsigned char *out)
{
	const double *row = ocean_row(ocean, level, y) + x;
	double unit = 1.0 + (double)(level / GRID_Z);

	for (unsigned int i = 0; i < TILE_X; i++) {
		double wide = row[i] * unit;
		float narrow = (float)wide;

		if (kind_element(kind) == sizeof(float))
			memcpy(out + i * sizeof(narrow), &narrow,
			       sizeof(narrow));
		else
			memcpy(out + i * sizeof(wide), &wide, sizeof(wide));
	}
}

/* Fortran's direct access: each record is a seek and a write. */
static bool write_rows(struct replay *replay, const struct ocean *ocean,
		       unsigned int field, unsigned int tile, int fd,
		       const char *path)
{
	struct totals *count = &replay->issued[PATTERN_DATA];
	enum field_kind kind = layout_kind(&replay->layout, field);
	unsigned int records = replay->layout.levels[kind] * TILE_Y;
	unsigned int x = tile % TILES_X * TILE_X;
	unsigned int y = tile / TILES_X * TILE_Y;
	size_t size = TILE_X * kind_element(kind);
	unsigned char row[TILE_X * sizeof(double)];

	for (unsigned int i = 0; i < records; i++) {
		encode_row(ocean, kind, i / TILE_Y, y + i % TILE_Y, x, row);
		if (!file_seek(fd, (uint64_t)i * size, count, path) ||
		    !file_write(fd, row, size, count,
				&replay->data[field * TILES + tile], path))
			return false;
	}
	return true;
}

static bool write_data(struct replay *replay, const struct ocean *ocean,
		       unsigned int field, unsigned int tile)
{
	char path[PATH_BYTES];
	bool ok;
	int fd;

	if (!name_field(replay, field, tile, "data", path))
		return false;
	fd = file_create(path);
	if (fd < 0)
		return false;
	replay->issued[PATTERN_DATA].files++;
	ok = write_rows(replay, ocean, field, tile, fd, path);
	return file_close(fd, path) && ok;
}

/* The description of a data file, filled up to the size it has in the model. */
static size_t meta_text(const struct replay *replay, unsigned int field,
			unsigned int tile, char text[META_DEEP + 1])
{
	enum field_kind kind = layout_kind(&replay->layout, field);
	unsigned int x = tile % TILES_X * TILE_X;
	unsigned int y = tile / TILES_X * TILE_Y;
	size_t size = kind_meta(kind);
	char level[32] = "";
	int length;

	if (kind == FIELD_DEEP)
		snprintf(level, sizeof(level), ",\n %5d,%5d,%5d", GRID_Z, 1,
			 GRID_Z);
	length = snprintf(text, size + 1,
			  " nDims = [ %3d ];\n"
			  " dimList = [\n %5d,%5u,%5u,\n %5d,%5u,%5u%s\n ];\n"
			  " format = [ 'float%zu' ];\n"
			  " nrecords = [ %5u ];\n",
			  kind == FIELD_DEEP ? 3 : 2, GRID_X, x + 1, x + TILE_X,
			  GRID_Y, y + 1, y + TILE_Y, level,
			  8 * kind_element(kind), replay->layout.levels[kind]);
	memset(text + length, ' ', size - (size_t)length);
	text[size - 1] = '\n';
	return size;
}

static bool write_meta(struct replay *replay, unsigned int field,
		       unsigned int tile)
{
	char text[META_DEEP + 1];
	size_t size = meta_text(replay, field, tile, text);
	char path[PATH_BYTES];
	bool ok;
	int fd;

	if (!name_field(replay, field, tile, "meta", path))
		return false;
	fd = file_create(path);
	if (fd < 0)
		return false;
	replay->issued[PATTERN_META].files++;
	ok = file_write(fd, text, size, &replay->issued[PATTERN_META],
			&replay->meta[field * TILES + tile], path);
	return file_close(fd, path) && ok;
}

static bool open_log(struct replay *replay)
{
	char path[PATH_BYTES];

	if (!name_log(replay, path))
		return false;
	replay->log_fd = file_create(path);
	replay->issued[PATTERN_LOG].files++;
	return replay->log_fd >= 0;
}

/* The results grow line by line, evenly over the run. */
static bool write_log(struct replay *replay, const struct ocean *ocean,
		      unsigned int field)
{
	unsigned int due =
		(unsigned int)((uint64_t)replay->layout.log * (field + 1) /
			       layout_fields(&replay->layout));
	char path[PATH_BYTES];
	char line[128];

	if (!name_log(replay, path))
		return false;
	for (; replay->log_lines < due; replay->log_lines++) {
		unsigned int n = replay->log_lines;
		double value = ocean_row(ocean, n, n / GRID_Z)[n % GRID_X];
		int length = snprintf(line, sizeof(line),
				      "(PID.TID 0000.0001) %%MON line_%05u "
				      "                 = %22.13E\n",
				      n, value);

		if (!file_write(replay->log_fd, line, (size_t)length,
				&replay->issued[PATTERN_LOG], &replay->log,
				path))
			return false;
	}
	return true;
}

bool replay_output(struct replay *replay, const struct ocean *ocean,
		   unsigned int field)
{
	if (replay->log_fd < 0 && !open_log(replay))
		return false;
	if (!write_log(replay, ocean, field))
		return false;
	for (unsigned int tile = 0; tile < TILES; tile++)
		if (!write_data(replay, ocean, field, tile) ||
		    !write_meta(replay, field, tile))
			return false;
	return true;
}

bool replay_finish(struct replay *replay)
{
	char path[PATH_BYTES];
	int fd = replay->log_fd;

	replay->log_fd = -1;
	return name_log(replay, path) && file_close(fd, path);
}
