#include "ocean.h"

#include <float.h>
#include <stdlib.h>

#include "digest.h"

enum { WAVES = 3 };

/* Share of a cell that goes to each of its neighbours in a step; the scheme
 * is stable up to 1/6. */
static const double exchange = 0.1;

/* Cosine and sine of a full turn by 90, 40 and 20. */
static const double turn_x[2] = { 0.99756405025982425, 0.069756473744125301 };
static const double turn_y[2] = { 0.98768834059513777, 0.15643446504023087 };
static const double turn_z[2] = { 0.95105651629515357, 0.30901699437494745 };

struct wave {
	double amplitude;
	unsigned int k[3];
};

typedef double level_t[GRID_Y][GRID_X];

struct ocean {
	struct wave waves[WAVES];
	double circle_x[GRID_X][2];
	double circle_y[GRID_Y][2];
	double circle_z[GRID_Z][2];
	uint64_t steps;
	level_t *now;
	level_t *next;
};

/* Points on the circle by repeated rotation: the same bits on every processor,
 * which a library's cosine does not promise. */
static void fill_circle(double (*circle)[2], unsigned int points,
			const double turn[2])
{
	circle[0][0] = 1.0;
	circle[0][1] = 0.0;
	for (unsigned int i = 1; i < points; i++) {
		const double *last = circle[i - 1];

		circle[i][0] = last[0] * turn[0] - last[1] * turn[1];
		circle[i][1] = last[0] * turn[1] + last[1] * turn[0];
	}
}

static void rotate(double v[2], const double by[2])
{
	double re = v[0] * by[0] - v[1] * by[1];

	v[1] = v[0] * by[1] + v[1] * by[0];
	v[0] = re;
}

static double wave_at(const struct ocean *ocean, const struct wave *wave,
		      unsigned int x, unsigned int y, unsigned int z)
{
	double v[2] = { wave->amplitude, 0.0 };

	rotate(v, ocean->circle_x[x * wave->k[0] % GRID_X]);
	rotate(v, ocean->circle_y[y * wave->k[1] % GRID_Y]);
	rotate(v, ocean->circle_z[z * wave->k[2] % GRID_Z]);
	return v[0];
}

/* By what a step multiplies the wave. */
static double wave_factor(const struct ocean *ocean, const struct wave *wave)
{
	double cx = ocean->circle_x[wave->k[0] % GRID_X][0];
	double cy = ocean->circle_y[wave->k[1] % GRID_Y][0];
	double cz = ocean->circle_z[wave->k[2] % GRID_Z][0];

	return 1.0 - 2.0 * exchange * ((1.0 - cx) + (1.0 - cy) + (1.0 - cz));
}

static void fill_ocean(struct ocean *ocean, uint64_t seed)
{
	for (int i = 0; i < WAVES; i++) {
		struct wave *wave = &ocean->waves[i];

		wave->amplitude = 1.0 + (double)(mix64(&seed) % 1000) / 100.0;
		wave->k[0] = 1 + (unsigned int)(mix64(&seed) % 3);
		wave->k[1] = 1 + (unsigned int)(mix64(&seed) % 2);
		wave->k[2] = (unsigned int)(mix64(&seed) % 2);
	}
	for (unsigned int z = 0; z < GRID_Z; z++)
		for (unsigned int y = 0; y < GRID_Y; y++)
			for (unsigned int x = 0; x < GRID_X; x++) {
				double sum = 0.0;

				for (int i = 0; i < WAVES; i++)
					sum += wave_at(ocean, &ocean->waves[i],
						       x, y, z);
				ocean->now[z][y][x] = sum;
			}
}

struct ocean *ocean_new(uint64_t seed)
{
	struct ocean *ocean = calloc(1, sizeof(*ocean));

	if (!ocean)
		return NULL;
	ocean->now = calloc(GRID_Z, sizeof(level_t));
	ocean->next = calloc(GRID_Z, sizeof(level_t));
	if (!ocean->now || !ocean->next) {
		ocean_free(ocean);
		return NULL;
	}
	fill_circle(ocean->circle_x, GRID_X, turn_x);
	fill_circle(ocean->circle_y, GRID_Y, turn_y);
	fill_circle(ocean->circle_z, GRID_Z, turn_z);
	fill_ocean(ocean, seed);
	return ocean;
}

void ocean_free(struct ocean *ocean)
{
	if (!ocean)
		return;
	free(ocean->now);
	free(ocean->next);
	free(ocean);
}

static void step_row(const struct ocean *ocean, unsigned int z, unsigned int y)
{
	const double *row = ocean->now[z][y];
	const double *north = ocean->now[z][(y + 1) % GRID_Y];
	const double *south = ocean->now[z][(y + GRID_Y - 1) % GRID_Y];
	const double *above = ocean->now[(z + 1) % GRID_Z][y];
	const double *below = ocean->now[(z + GRID_Z - 1) % GRID_Z][y];
	double *out = ocean->next[z][y];

	for (unsigned int x = 0; x < GRID_X; x++) {
		double west = row[x ? x - 1 : GRID_X - 1];
		double east = row[x < GRID_X - 1 ? x + 1 : 0];
		double around =
			west + east + north[x] + south[x] + above[x] + below[x];

		out[x] = row[x] + exchange * (around - 6.0 * row[x]);
	}
}

void ocean_steps(struct ocean *ocean, unsigned int steps)
{
	for (unsigned int i = 0; i < steps; i++) {
		level_t *old = ocean->now;

		for (unsigned int z = 0; z < GRID_Z; z++)
			for (unsigned int y = 0; y < GRID_Y; y++)
				step_row(ocean, z, y);
		ocean->now = ocean->next;
		ocean->next = old;
		ocean->steps++;
	}
}

const double *ocean_row(const struct ocean *ocean, unsigned int level,
			unsigned int y)
{
	return ocean->now[level % GRID_Z][y % GRID_Y];
}

uint64_t ocean_digest(const struct ocean *ocean)
{
	return digest_add(DIGEST_START, ocean->now, GRID_Z * sizeof(level_t));
}

static double power(double base, uint64_t exponent)
{
	double result = 1.0;

	for (; exponent; exponent >>= 1, base *= base)
		if (exponent & 1)
			result *= base;
	return result;
}

double ocean_error(const struct ocean *ocean)
{
	double decay[WAVES];
	double worst = 0.0;

	for (int i = 0; i < WAVES; i++)
		decay[i] = power(wave_factor(ocean, &ocean->waves[i]),
				 ocean->steps);
	for (unsigned int z = 0; z < GRID_Z; z++)
		for (unsigned int y = 0; y < GRID_Y; y++)
			for (unsigned int x = 0; x < GRID_X; x++) {
				double off = ocean->now[z][y][x];

				for (int i = 0; i < WAVES; i++)
					off -= decay[i] *
					       wave_at(ocean, &ocean->waves[i],
						       x, y, z);
				off = off < 0.0 ? -off : off;
				/* Not a number compares with nothing. */
				if (off != off)
					return DBL_MAX;
				if (off > worst)
					worst = off;
			}
	return worst;
}
