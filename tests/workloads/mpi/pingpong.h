/* What the parts of mpi-pingpong share. */
#ifndef MPI_PINGPONG_H
#define MPI_PINGPONG_H

#include <stdbool.h>
#include <stddef.h>

enum { LARGEST = 16000, WINDOW = 16 };

struct options {
	int samples;       /* that count, of each size */
	int messages;      /* in each sample, one way */
	const char *wrong; /* where rank 1 changes a byte, or NULL */
};

/* Reads the options; on wrong usage says so if loud, and returns false. */
bool read_options(struct options *options, int argc, char **argv, bool loud);

struct spread {
	double median, q1, q3, least, most;
};

/* Sorts the values. */
struct spread spread_of(double *values, int count);

/*
 * Contents that depend on the place, the size and the sample, after byte 0: that
 * is the message's number, without which an old one would pass for a new one.
 */
void fill(unsigned char *data, size_t size, unsigned int sample);
/* The first place after byte 0 that is not as fill leaves it, or size. */
size_t differs(const unsigned char *data, size_t size, unsigned int sample);

#endif
