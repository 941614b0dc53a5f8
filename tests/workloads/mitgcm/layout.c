#include "layout.h"

static unsigned int scaled(unsigned int count, unsigned int scale)
{
	return count / scale ? count / scale : 1;
}

struct layout layout_make(unsigned int scale)
{
	/*
	 * A pickup has 8 fields with all levels and 3 without, one of the
	 * coupled time stepping 4 and 1.
	 *
	 * The paper counts 630 reads and 179,579 writes in all, but only 162
	 * of the reads go to bin files and 160,748 of the writes to meta and
	 * data files. It names the rest, parameters in and one file of results
	 * out, without sizes: the length of those lines is our choice.
	 */
	struct layout full = {
		.fields = { 86, 39, 1, 1 },
		.levels = { GRID_Z, 1, 8 * GRID_Z + 3, 4 * GRID_Z + 1 },
		.bin_levels = { 1, GRID_Z },
		.params = 468,
		.log = 18831,
	};

	full.fields[FIELD_DEEP] = scaled(full.fields[FIELD_DEEP], scale);
	full.fields[FIELD_FLAT] = scaled(full.fields[FIELD_FLAT], scale);
	full.levels[FIELD_PICKUP] = scaled(full.levels[FIELD_PICKUP], scale);
	full.levels[FIELD_PICKUP_CD] =
		scaled(full.levels[FIELD_PICKUP_CD], scale);
	full.bin_levels[1] = scaled(full.bin_levels[1], scale);
	full.params = scaled(full.params, scale);
	full.log = scaled(full.log, scale);
	return full;
}

unsigned int layout_fields(const struct layout *layout)
{
	unsigned int sum = 0;

	for (int kind = 0; kind < FIELD_KINDS; kind++)
		sum += layout->fields[kind];
	return sum;
}

enum field_kind layout_kind(const struct layout *layout, unsigned int n)
{
	unsigned int deep = layout->fields[FIELD_DEEP];
	unsigned int snapshots = deep + layout->fields[FIELD_FLAT];

	if (n >= snapshots)
		return n - snapshots < layout->fields[FIELD_PICKUP] ?
			       FIELD_PICKUP :
			       FIELD_PICKUP_CD;
	if ((n + 1) * deep / snapshots > n * deep / snapshots)
		return FIELD_DEEP;
	return FIELD_FLAT;
}

size_t kind_element(enum field_kind kind)
{
	return kind == FIELD_DEEP || kind == FIELD_FLAT ? sizeof(float) :
							  sizeof(double);
}

size_t kind_meta(enum field_kind kind)
{
	return kind == FIELD_DEEP ? META_DEEP : META_FLAT;
}

const char *kind_name(enum field_kind kind)
{
	static const char *const names[FIELD_KINDS] = { "state", "surface",
							"pickup", "pickup_cd" };

	return names[kind];
}

const char *pattern_name(enum pattern pattern)
{
	static const char *const names[PATTERNS] = { "bin", "parameter", "meta",
						     "data", "log" };

	return names[pattern];
}

size_t bin_size(const struct layout *layout, unsigned int bin)
{
	unsigned int levels = layout->bin_levels[bin >= BIN_FILES - BIN_DEEP];

	return (size_t)levels * GRID_X * GRID_Y * sizeof(float);
}

static void add_field(const struct layout *layout, enum field_kind kind,
		      struct totals out[PATTERNS])
{
	uint64_t files = (uint64_t)layout->fields[kind] * TILES;
	uint64_t writes = files * layout->levels[kind] * TILE_Y;

	out[PATTERN_META].files += files;
	out[PATTERN_META].writes += files;
	out[PATTERN_META].bytes += files * kind_meta(kind);
	out[PATTERN_DATA].files += files;
	out[PATTERN_DATA].writes += writes;
	out[PATTERN_DATA].seeks += writes;
	out[PATTERN_DATA].bytes += writes * TILE_X * kind_element(kind);
}

void layout_totals(const struct layout *layout, struct totals out[PATTERNS])
{
	for (int pattern = 0; pattern < PATTERNS; pattern++)
		out[pattern] = (struct totals){ 0 };
	for (enum field_kind kind = 0; kind < FIELD_KINDS; kind++)
		add_field(layout, kind, out);
	for (unsigned int bin = 0; bin < BIN_FILES; bin++) {
		size_t size = bin_size(layout, bin);

		out[PATTERN_BIN].files++;
		out[PATTERN_BIN].reads += (size + READ_CHUNK - 1) / READ_CHUNK;
		out[PATTERN_BIN].bytes += size;
	}
	out[PATTERN_PARAM].files = 1;
	out[PATTERN_PARAM].reads = layout->params;
	out[PATTERN_PARAM].bytes = (uint64_t)layout->params * PARAM_LINE;
	out[PATTERN_LOG].files = 1;
	out[PATTERN_LOG].writes = layout->log;
}
