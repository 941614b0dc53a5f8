#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"
#include "whole.h"

enum { BLOCK = 65536, PAGE = 4096, BLOCKS = 16 };

static ssize_t give(int fd, void *bytes, size_t size)
{
	return write(fd, bytes, size);
}

/* A child writes n blocks, and one before and one behind that, which do not
   count; the last one has another content. */
static void stream(struct run *run, unsigned int marker, uint64_t n, int to,
		   int from)
{
	static unsigned char block[BLOCK];
	pid_t pid = fork();
	int status;

	NEED(pid >= 0, "fork");
	if (pid == 0) {
		bool ok = true;

		run_fill(block, BLOCK, run->seed);
		for (uint64_t i = 0; ok && i < n + 1; i++)
			ok = whole(to, block, BLOCK, give);
		run_fill(block, BLOCK, run->seed + 1);
		_exit(ok && whole(to, block, BLOCK, give) ? 0 : 1);
	}
	bool ok = whole(from, block, BLOCK, read);
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = whole(from, block, BLOCK, read);
	MARK_END();
	NEED(ok, "stream");
	run_compare("stream", block, BLOCK, run->seed);
	NEED(whole(from, block, BLOCK, read), "stream");
	run_compare("end of the stream", block, BLOCK, run->seed + 1);
	NEED(waitpid(pid, &status, 0) == pid, "wait");
	if (status)
		run_wrong("a child ended with status %d", status);
	NEED(!close(to) && !close(from), "stream");
}

void row_bandwidth_pipe(struct run *run, unsigned int marker, uint64_t n)
{
	int ends[2];

	NEED(!pipe(ends), "pipe");
	stream(run, marker, n, ends[1], ends[0]);
}

void row_bandwidth_unix(struct run *run, unsigned int marker, uint64_t n)
{
	int ends[2];

	NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	stream(run, marker, n, ends[1], ends[0]);
}

void row_bandwidth_tcp(struct run *run, unsigned int marker, uint64_t n)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int server = socket(AF_INET, SOCK_STREAM, 0);
	int to = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	NEED(server >= 0 && to >= 0 &&
		     !bind(server, (struct sockaddr *)&address, size) &&
		     !listen(server, 1) &&
		     !getsockname(server, (struct sockaddr *)&address, &size) &&
		     !connect(to, (struct sockaddr *)&address, size),
	     "loopback");

	int from = accept(server, NULL, NULL);

	NEED(from >= 0 && !close(server), "loopback");
	stream(run, marker, n, to, from);
}

/* A file of BLOCKS blocks in the page cache, without a name. */
static int cached(struct run *run, unsigned char *block)
{
	int fd = rows_file(run);

	run_fill(block, BLOCK, run->seed);
	for (int i = 0; i < BLOCKS; i++)
		NEED(whole(fd, block, BLOCK, give), "cached file");
	return fd;
}

void row_bandwidth_file(struct run *run, unsigned int marker, uint64_t n)
{
	static unsigned char block[BLOCK];
	int fd = cached(run, block);
	bool ok = true;

	memset(block, 0, BLOCK);
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = pread(fd, block, BLOCK, (off_t)(i % BLOCKS) * BLOCK) ==
		     BLOCK;
	MARK_END();
	NEED(ok, "file");
	run_compare("file", block, BLOCK, run->seed);
	NEED(!close(fd), "file");
}

/* Each round maps the file anew and reads every page of it. */
void row_bandwidth_mmap(struct run *run, unsigned int marker, uint64_t n)
{
	static unsigned char block[BLOCK];
	int fd = cached(run, block);
	bool ok = true;

	mark(marker);
	for (uint64_t i = 0; ok && i < n;) {
		unsigned char *memory = mmap(NULL, BLOCKS * BLOCK, PROT_READ,
					     MAP_SHARED, fd, 0);

		ok = memory != MAP_FAILED;
		for (int k = 0; ok && k < BLOCKS && i < n; k++, i++)
			for (int at = 0; at < BLOCK; at += PAGE)
				ok = ok && memory[k * BLOCK + at] == block[at];
		ok = ok && !munmap(memory, BLOCKS * BLOCK);
	}
	MARK_END();
	NEED(ok && !close(fd), "mapped file");
}
