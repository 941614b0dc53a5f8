#define _GNU_SOURCE
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "files.h"

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

struct span span_now(void)
{
	struct timespec wall;
	struct rusage usage;

	clock_gettime(CLOCK_MONOTONIC, &wall);
	getrusage(RUSAGE_SELF, &usage);
	return (struct span){
		.wall = (double)wall.tv_sec + (double)wall.tv_nsec * 1e-9,
		.user = seconds(&usage.ru_utime),
		.sys = seconds(&usage.ru_stime),
	};
}

void span_add(struct span *sum, const struct span *from)
{
	struct span now = span_now();

	sum->wall += now.wall - from->wall;
	sum->user += now.user - from->user;
	sum->sys += now.sys - from->sys;
}

static struct totals sum_up(const struct replay *replay)
{
	struct totals sum = { 0 };

	for (int p = 0; p < PATTERNS; p++) {
		sum.files += replay->issued[p].files;
		sum.reads += replay->issued[p].reads;
		sum.writes += replay->issued[p].writes;
		sum.seeks += replay->issued[p].seeks;
		sum.bytes += replay->issued[p].bytes;
	}
	return sum;
}

static void json_totals(const char *name, const struct totals *totals)
{
	printf("\"%s\":{\"files\":%llu,\"reads\":%llu,\"writes\":%llu,"
	       "\"seeks\":%llu,\"bytes\":%llu}",
	       name, (unsigned long long)totals->files,
	       (unsigned long long)totals->reads,
	       (unsigned long long)totals->writes,
	       (unsigned long long)totals->seeks,
	       (unsigned long long)totals->bytes);
}

static void json_span(const char *name, const struct span *span)
{
	printf("\"%s\":{\"wall\":%.6f,\"user\":%.6f,\"sys\":%.6f}", name,
	       span->wall, span->user, span->sys);
}

static void print_json(const struct options *options,
		       const struct replay *replay,
		       const struct outcome *outcome)
{
	struct totals sum = sum_up(replay);

	printf("{\"program\":\"mitgcm-io\",\"seed\":%llu,\"io_scale\":%u,"
	       "\"compute_scale\":%u,\"ok\":%s,\"patterns\":{",
	       (unsigned long long)options->seed, options->io_scale,
	       options->compute_scale, outcome->ok ? "true" : "false");
	for (enum pattern p = 0; p < PATTERNS; p++) {
		if (p)
			putchar(',');
		json_totals(pattern_name(p), &replay->issued[p]);
	}
	printf("},");
	json_totals("total", &sum);
	printf(",\"compute\":{\"steps\":%llu,\"digest\":\"%016llx\","
	       "\"error\":%.3e},\"seconds\":{",
	       (unsigned long long)outcome->steps,
	       (unsigned long long)outcome->digest, outcome->error);
	json_span("compute", &outcome->compute);
	putchar(',');
	json_span("io", &outcome->io);
	printf("}}\n");
}

static void text_totals(const char *name, const struct totals *totals)
{
	printf("%-10s %6llu %8llu %8llu %8llu %10llu\n", name,
	       (unsigned long long)totals->files,
	       (unsigned long long)totals->reads,
	       (unsigned long long)totals->writes,
	       (unsigned long long)totals->seeks,
	       (unsigned long long)totals->bytes);
}

static void text_span(const char *name, const struct span *span)
{
	printf("%-10s wall %.3f s, user %.3f s, sys %.3f s\n", name, span->wall,
	       span->user, span->sys);
}

static void print_text(const struct replay *replay,
		       const struct outcome *outcome)
{
	struct totals sum = sum_up(replay);

	printf("%-10s %6s %8s %8s %8s %10s\n", "pattern", "files", "reads",
	       "writes", "seeks", "bytes");
	for (enum pattern p = 0; p < PATTERNS; p++)
		text_totals(pattern_name(p), &replay->issued[p]);
	text_totals("total", &sum);
	text_span("compute", &outcome->compute);
	text_span("io", &outcome->io);
	printf("result     %llu steps, digest %016llx, error %.1e: %s\n",
	       (unsigned long long)outcome->steps,
	       (unsigned long long)outcome->digest, outcome->error,
	       outcome->ok ? "ok" : "WRONG");
}

bool report_print(const struct options *options, const struct replay *replay,
		  const struct outcome *outcome)
{
	if (options->json)
		print_json(options, replay, outcome);
	else
		print_text(replay, outcome);
	if (fflush(stdout) == 0 && !ferror(stdout))
		return true;
	return complain("standard output: %s", strerror(errno));
}
