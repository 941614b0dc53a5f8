#include <stdlib.h>

#include "pingpong.h"

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Between the two nearest values, as the bench's own quartiles are. */
static double quantile(const double *sorted, int count, double q)
{
	double at = q * (count - 1);
	int low = (int)at;

	if (low + 1 >= count)
		return sorted[low];
	return sorted[low] + (at - low) * (sorted[low + 1] - sorted[low]);
}

struct spread spread_of(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	return (struct spread){
		.median = quantile(values, count, 0.5),
		.q1 = quantile(values, count, 0.25),
		.q3 = quantile(values, count, 0.75),
		.least = values[0],
		.most = values[count - 1],
	};
}

static unsigned char byte_at(size_t at, size_t size, unsigned int sample)
{
	size_t value = at * 167 + (at >> 8) * 59 + size * 31 + sample * 13 + 7;

	return (unsigned char)value;
}

void fill(unsigned char *data, size_t size, unsigned int sample)
{
	for (size_t at = 1; at < size; at++)
		data[at] = byte_at(at, size, sample);
}

size_t differs(const unsigned char *data, size_t size, unsigned int sample)
{
	for (size_t at = 1; at < size; at++) {
		if (data[at] != byte_at(at, size, sample))
			return at;
	}
	return size;
}
