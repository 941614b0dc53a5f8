/*
 * tcp-roundtrip: a client and a server on the loopback device, in two
 * processes. Round trips of 64 bytes, connections, and a stream; the server
 * sends back what it gets, and the client compares.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"
#include "run.h"
#include "whole.h"

enum { MESSAGE = 64, BLOCK = 65536 };

static ssize_t out(int fd, void *memory, size_t size)
{
	return send(fd, memory, size, MSG_NOSIGNAL);
}

static int no_delay(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		run_fail("TCP_NODELAY");
	return fd;
}

static int listen_here(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr = { .s_addr = htonl(INADDR_LOOPBACK) },
	};
	if (fd < 0 || bind(fd, (struct sockaddr *)address, length) ||
	    listen(fd, 64) ||
	    getsockname(fd, (struct sockaddr *)address, &length))
		run_fail("listen");
	return fd;
}

static int connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 ||
	    connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		run_fail("connect");
	return no_delay(fd);
}

/* Sends back message by message, until the client hangs up. */
static void serve(int fd, size_t size)
{
	static char buffer[BLOCK];

	while (whole(fd, buffer, size, read)) {
		if (!whole(fd, buffer, size, out))
			run_fail("server");
	}
}

/* One connection of each row in turn; short ones are counted. */
static void server(int listener, uint64_t connections)
{
	static const size_t sizes[] = { MESSAGE, BLOCK };

	for (uint64_t i = 0; i < connections + 2; i++) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			run_fail("accept");
		no_delay(fd);
		serve(fd, i < 2 ? sizes[i] : 1);
		if (close(fd))
			run_fail("server");
	}
	_exit(0);
}

static void exchange(struct run *run, const struct sockaddr_in *address,
		     unsigned int row, const char *name, size_t size,
		     uint64_t times)
{
	static char sent[BLOCK], got[BLOCK];
	int fd = connect_to(address);
	bool ok = true;

	run_fill(sent, size, run->seed);
	/* Once before it counts: windows open, and memory is there. */
	ok = whole(fd, sent, size, out) && whole(fd, got, size, read);
	mark(run->first + row);
	for (uint64_t i = 0; ok && i < times; i++) {
		memcpy(sent, &i, sizeof(i));
		ok = whole(fd, sent, size, out) && whole(fd, got, size, read) &&
		     memcmp(sent, got, size) == 0;
	}
	MARK_END();
	if (!ok)
		run_fail(name);
	memcpy(sent, got, sizeof(uint64_t));
	run_fill(got, sizeof(uint64_t), run->seed);
	memcpy(sent, got, sizeof(uint64_t));
	run_compare(name, sent, size, run->seed);
	if (close(fd))
		run_fail(name);
	run_region(run, run->first + row, name, times);
}

static void connections(struct run *run, const struct sockaddr_in *address,
			unsigned int row, uint64_t times)
{
	mark(run->first + row);
	for (uint64_t i = 0; i < times; i++) {
		char byte = (char)(run->seed + i), back = 0;
		int fd = connect_to(address);

		if (!whole(fd, &byte, 1, out) || !whole(fd, &back, 1, read) ||
		    byte != back || close(fd))
			run_fail("connection");
	}
	MARK_END();
	run_region(run, run->first + row, "connection", times);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address;
	struct run run;

	run_begin(&run, argc, argv);

	uint64_t short_ones = run.size / 10 + 1;
	int listener = listen_here(&address);
	pid_t child = fork();
	int status;

	if (child < 0)
		run_fail("fork");
	if (child == 0)
		server(listener, short_ones);
	if (close(listener))
		run_fail("listener");
	exchange(&run, &address, 0, "round-trip", MESSAGE, run.size);
	exchange(&run, &address, 1, "stream-64k", BLOCK, run.size / 20 + 1);
	connections(&run, &address, 2, short_ones);
	if (waitpid(child, &status, 0) != child || status != 0)
		run_wrong("the server ended with status %d", status);
	return run_end(&run);
}
