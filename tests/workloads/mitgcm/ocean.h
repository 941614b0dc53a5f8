/*
 * The computation: a tracer that spreads through a closed ocean, as a seven
 * point stencil over the whole grid in double precision.
 *
 * The tracer starts as a sum of waves. Each wave is an eigenvector of the
 * stencil, so that the exact result of any number of steps is known and every
 * cell can be checked at the end.
 */
#ifndef OCEAN_H
#define OCEAN_H

#include <stdint.h>

#include "layout.h"

struct ocean;

/* NULL when there is no memory. */
struct ocean *ocean_new(uint64_t seed);
void ocean_free(struct ocean *ocean);

void ocean_steps(struct ocean *ocean, unsigned int steps);

/* One row of the present state. */
const double *ocean_row(const struct ocean *ocean, unsigned int level,
			unsigned int y);

/* Digest of the bits of all cells: equal runs have equal digests. */
uint64_t ocean_digest(const struct ocean *ocean);

/* Largest distance of a cell from its exact value. */
double ocean_error(const struct ocean *ocean);

/* What that distance may be: rounding, and nothing more. */
#define OCEAN_TOLERANCE 1e-9

#endif
