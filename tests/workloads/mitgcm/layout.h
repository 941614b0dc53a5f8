/*
 * What MITgcm's experiment 2 reads and writes, file by file.
 *
 * The paper gives totals: files, calls and bytes per pattern. The layout here
 * is the model's own way to write, and it meets those totals exactly: a grid
 * of 90 x 40 columns with 20 levels, cut in 2 x 2 tiles of 45 x 20; each field
 * is one data and one meta file per tile, each row of a tile one write.
 */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum {
	GRID_X = 90,
	GRID_Y = 40,
	GRID_Z = 20,
	TILES_X = 2,
	TILES_Y = 2,
	TILES = TILES_X * TILES_Y,
	TILE_X = GRID_X / TILES_X,
	TILE_Y = GRID_Y / TILES_Y,

	READ_CHUNK = 4096, /* bytes of a bin file at a time */
	META_FLAT = 183,   /* bytes of a meta file with two dimensions */
	META_DEEP = 212,   /* and with three */
	PARAM_LINE = 80,   /* bytes of a line of the parameter file */
	BIN_FILES = 7,
	BIN_DEEP = 2 /* so many of the bin files hold all levels */
};

/* What a data file holds: snapshots in single precision, and the state to
 * restart from ("pickup") in double precision, with many records. */
enum field_kind {
	FIELD_DEEP,
	FIELD_FLAT,
	FIELD_PICKUP,
	FIELD_PICKUP_CD,
	FIELD_KINDS
};

struct layout {
	unsigned int fields[FIELD_KINDS];
	unsigned int levels[FIELD_KINDS];
	unsigned int bin_levels[2]; /* of the flat and of the deep bin files */
	unsigned int params; /* lines of the parameter file, one read each */
	unsigned int log;    /* lines of the log, one write each */
};

struct totals {
	uint64_t files;
	uint64_t reads;
	uint64_t writes;
	uint64_t seeks;
	uint64_t bytes;
};

enum pattern {
	PATTERN_BIN,
	PATTERN_PARAM,
	PATTERN_META,
	PATTERN_DATA,
	PATTERN_LOG,
	PATTERNS
};

/* The layout with every count divided by scale, but at least one of each. */
struct layout layout_make(unsigned int scale);

/* What the layout amounts to, per pattern. The bytes of the log depend on its
 * text and stay 0. */
void layout_totals(const struct layout *layout, struct totals out[PATTERNS]);

unsigned int layout_fields(const struct layout *layout);

/* Kind of the nth field: kinds come evenly mixed, pickups at the end. */
enum field_kind layout_kind(const struct layout *layout, unsigned int n);

size_t kind_element(enum field_kind kind);
size_t kind_meta(enum field_kind kind);
const char *kind_name(enum field_kind kind);
const char *pattern_name(enum pattern pattern);
size_t bin_size(const struct layout *layout, unsigned int bin);

#endif
