/*
 * mpi-pingpong: what messages between two ranks take. Latency is half of a round
 * trip of one message; bandwidth is that of messages in windows, each window
 * answered by an empty one. What arrives is compared, outside of the time.
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pingpong.h"

enum { TAG_DATA = 1, TAG_ANSWER };

static const int short_ones[] = { 0, 1, 2, 4, 8, 16, 32, 64 };
static const int long_ones[] = {
	64, 250, 500, 1000, 2000, 4000, 8000, LARGEST
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct run {
	struct options options;
	int rank;
	unsigned char *out, *in; /* a window of the largest messages */
	double *values;
};

/*
 * MPI's own errors end the program by themselves. MPI_Abort would have the
 * launcher kill this rank before it has read the message; a rank that ends
 * without MPI_Finalize ends the other one, too.
 */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(
	const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "mpi-pingpong: %s\n", text);
	_exit(1);
}

static void wrong_byte(size_t at, int size)
{
	fail("byte %zu of a message of %d bytes is wrong", at, size);
}

static void number(unsigned char *data, int size, int message)
{
	if (size > 0)
		data[0] = (unsigned char)message;
}

/* While the time runs: the size, and that it is this message. */
static void received(const MPI_Status *status, const unsigned char *data,
		     int size, int message)
{
	int count;

	MPI_Get_count(status, MPI_BYTE, &count);
	if (count != size)
		fail("%d bytes arrived of %d", count, size);
	if (size > 0 && data[0] != (unsigned char)message)
		wrong_byte(0, size);
}

/* Afterwards: the rest of it. None of it is left to pass for the next one. */
static void compare(unsigned char *data, int size, unsigned int sample)
{
	size_t at = differs(data, (size_t)size, sample);

	if (at < (size_t)size)
		wrong_byte(at, size);
	memset(data, 0, (size_t)size);
}

static void spoil(const struct run *run, const char *where, int size, int at)
{
	if (run->rank == 1 && size > 1 && run->options.wrong &&
	    strcmp(run->options.wrong, where) == 0)
		run->in[at] ^= 1;
}

/* Rank 1 sends back what came, so rank 0 compares what went both ways. */
static void trip(struct run *run, int size, int message)
{
	MPI_Status status;

	if (run->rank == 0) {
		number(run->out, size, message);
		MPI_Send(run->out, size, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD);
	}
	MPI_Recv(run->in, size, MPI_BYTE, 1 - run->rank, TAG_DATA,
		 MPI_COMM_WORLD, &status);
	received(&status, run->in, size, message);
	if (run->rank == 1) {
		spoil(run, "number", size, 0);
		spoil(run, "latency", size, size - 1);
		MPI_Send(run->in, size, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD);
	}
}

static double trips(struct run *run, int size, unsigned int sample)
{
	double begin;

	fill(run->out, (size_t)size, sample);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	for (int i = 0; i < run->options.messages; i++)
		trip(run, size, i);
	begin = MPI_Wtime() - begin;
	compare(run->in, run->rank == 0 ? size : 0, sample);
	return begin / (2.0 * run->options.messages);
}

static void window(struct run *run, int size, int first)
{
	MPI_Request all[WINDOW];
	MPI_Status statuses[WINDOW];

	for (int i = 0; i < WINDOW; i++) {
		unsigned char *out = run->out + i * LARGEST;

		if (run->rank == 0) {
			number(out, size, first + i);
			MPI_Isend(out, size, MPI_BYTE, 1, TAG_DATA,
				  MPI_COMM_WORLD, &all[i]);
		} else {
			MPI_Irecv(run->in + i * LARGEST, size, MPI_BYTE, 0,
				  TAG_DATA, MPI_COMM_WORLD, &all[i]);
		}
	}
	MPI_Waitall(WINDOW, all, statuses);
	if (run->rank == 0) {
		MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG_ANSWER, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		return;
	}
	for (int i = 0; i < WINDOW; i++)
		received(&statuses[i], run->in + i * LARGEST, size, first + i);
	MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_ANSWER, MPI_COMM_WORLD);
}

static double stream(struct run *run, int size, unsigned int sample)
{
	double begin;

	for (int i = 0; i < WINDOW; i++)
		fill(run->out + i * LARGEST, (size_t)size,
		     sample * WINDOW + (unsigned int)i);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	for (int i = 0; i < run->options.messages; i += WINDOW)
		window(run, size, i);
	begin = MPI_Wtime() - begin;
	spoil(run, "bandwidth", size, size - 1);
	for (int i = 0; run->rank == 1 && i < WINDOW; i++)
		compare(run->in + i * LARGEST, size,
			sample * WINDOW + (unsigned int)i);
	return (double)size * run->options.messages / begin;
}

/* One sample before those that count: connections, windows, memory. */
static struct spread measure(struct run *run, int size,
			     double (*once)(struct run *, int, unsigned int))
{
	once(run, size, 0);
	for (int i = 0; i < run->options.samples; i++)
		run->values[i] = once(run, size, (unsigned int)i + 1);
	return spread_of(run->values, run->options.samples);
}

static void rows(struct run *run, const char *name, const int *sizes,
		 size_t count, double (*once)(struct run *, int, unsigned int))
{
	if (run->rank == 0)
		printf(",\n  \"%s\": [", name);
	for (size_t i = 0; i < count; i++) {
		struct spread s = measure(run, sizes[i], once);

		if (run->rank == 0)
			printf("%s\n    {\"bytes\": %d, \"median\": %.6g, "
			       "\"q1\": %.6g, \"q3\": %.6g, \"min\": %.6g, "
			       "\"max\": %.6g}",
			       i ? "," : "", sizes[i], s.median, s.q1, s.q3,
			       s.least, s.most);
	}
	if (run->rank == 0)
		printf("\n  ]");
}

/* Where the ranks are: two of one node would measure something else. */
static void head(const struct run *run)
{
	char names[2][MPI_MAX_PROCESSOR_NAME] = { "", "" };
	char library[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_processor_name(names[run->rank], &length);
	if (run->rank == 1) {
		MPI_Send(names[1], MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 0,
			 TAG_ANSWER, MPI_COMM_WORLD);
		return;
	}
	MPI_Recv(names[1], MPI_MAX_PROCESSOR_NAME, MPI_CHAR, 1, TAG_ANSWER,
		 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Get_library_version(library, &length);
	library[strcspn(library, "\n")] = '\0';
	for (char *at = library; *at; at++) {
		if (*at == '\t' || *at == '"' || *at == '\\')
			*at = ' ';
	}
	printf("{\n  \"nodes\": [\"%s\", \"%s\"],\n  \"library\": \"%s\",\n"
	       "  \"samples\": %d,\n  \"messages\": %d",
	       names[0], names[1], library, run->options.samples,
	       run->options.messages);
}

int main(int argc, char **argv)
{
	struct run run = { .rank = 0 };
	int ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!read_options(&run.options, argc, argv, run.rank == 0)) {
		MPI_Finalize();
		return 2;
	}
	if (ranks != 2) {
		if (run.rank == 0)
			fprintf(stderr, "mpi-pingpong: %d ranks and not 2\n",
				ranks);
		MPI_Finalize();
		return 2;
	}
	run.out = calloc(WINDOW, LARGEST);
	run.in = calloc(WINDOW, LARGEST);
	run.values = calloc((size_t)run.options.samples, sizeof(*run.values));
	if (!run.out || !run.in || !run.values)
		fail("no memory");
	head(&run);
	rows(&run, "latency_seconds", short_ones, COUNT(short_ones), trips);
	rows(&run, "bandwidth_bytes_per_second", long_ones, COUNT(long_ones),
	     stream);
	free(run.out);
	free(run.in);
	free(run.values);
	MPI_Finalize();
	if (run.rank == 0 && (printf("\n}\n") < 0 || fflush(stdout)))
		return 1;
	return 0;
}
