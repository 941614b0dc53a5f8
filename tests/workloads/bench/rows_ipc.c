#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"
#include "rows.h"

/* A ring of processes hands a token round; each works on memory of its own. */
struct ring {
	unsigned int processes;
	size_t memory;
	uint64_t rounds;
	int (*links)[2]; /* process i reads links[i][0], writes links[i+1][1] */
};

static bool pass(int from, int to, uint32_t *token)
{
	if (read(from, token, sizeof(*token)) != sizeof(*token))
		return false;
	++*token;
	return write(to, token, sizeof(*token)) == sizeof(*token);
}

static void use(volatile unsigned char *memory, size_t size)
{
	for (size_t i = 0; i < size; i += 64)
		memory[i] = (unsigned char)(memory[i] + 1);
}

static void member(struct ring *ring, unsigned int i)
{
	int from = ring->links[i][0];
	int to = ring->links[(i + 1) % ring->processes][1];
	unsigned char *memory = calloc(1, ring->memory + 1);
	uint32_t token;

	/* The first round is before it counts, and the last behind: who ends
	   after it ends outside of the region. */
	for (uint64_t round = 0; round < ring->rounds + 2; round++) {
		use(memory, ring->memory);
		if (!pass(from, to, &token))
			_exit(1);
	}
	_exit(0);
}

static bool lead(struct ring *ring, uint64_t rounds, uint32_t *token,
		 unsigned char *memory)
{
	for (uint64_t round = 0; round < rounds; round++) {
		use(memory, ring->memory);
		if (write(ring->links[1][1], token, sizeof(*token)) !=
			    sizeof(*token) ||
		    read(ring->links[0][0], token, sizeof(*token)) !=
			    sizeof(*token))
			return false;
	}
	return true;
}

static void await(unsigned int children)
{
	for (unsigned int i = 0; i < children; i++) {
		int status;

		NEED(wait(&status) > 0, "wait");
		if (status)
			run_wrong("a child ended with status %d", status);
	}
}

/* n counts handovers: one round of p processes is p of them, and the caller's n
   is a multiple of that. */
static void go_round(unsigned int marker, uint64_t n, struct ring *ring)
{
	uint32_t token = 0;
	unsigned char *memory = calloc(1, ring->memory + 1);

	NEED(memory, "memory");
	ring->rounds = n / ring->processes;
	for (unsigned int i = 1; i < ring->processes; i++) {
		pid_t pid = fork();

		NEED(pid >= 0, "fork");
		if (pid == 0)
			member(ring, i);
	}
	NEED(lead(ring, 1, &token, memory), "ring");
	mark(marker);
	bool ok = lead(ring, ring->rounds, &token, memory);
	MARK_END();
	NEED(ok && lead(ring, 1, &token, memory), "ring");
	await(ring->processes - 1);
	/* The leader does not add to it. */
	if (token != (ring->rounds + 2) * (ring->processes - 1))
		run_wrong("the token was handed on %u times", token);
	free(memory);
}

static void ring_of_pipes(unsigned int marker, uint64_t n,
			  unsigned int processes, size_t memory)
{
	int links[24][2];
	struct ring ring = { .processes = processes,
			     .memory = memory,
			     .links = links };

	for (unsigned int i = 0; i < processes; i++)
		NEED(!pipe(links[i]), "pipe");
	go_round(marker, n, &ring);
	for (unsigned int i = 0; i < processes; i++)
		NEED(!close(links[i][0]) && !close(links[i][1]), "pipe");
}

/* A ring of so many processes with so many KiB each. */
#define SWITCH(processes, kib)                                               \
	void row_switch_##processes##_##kib(struct run *run,                 \
					    unsigned int marker, uint64_t n) \
	{                                                                    \
		(void)run;                                                   \
		ring_of_pipes(marker, n, processes, (kib)*1024UL);           \
	}

SWITCH_GRID(SWITCH)

static void echo(int from, int to, uint64_t n)
{
	unsigned char byte;

	while (n-- > 0) {
		if (read(from, &byte, 1) != 1)
			_exit(1);
		byte ^= 0x55;
		if (write(to, &byte, 1) != 1)
			_exit(1);
	}
	_exit(0);
}

static bool ask_once(int to, int from, unsigned char byte)
{
	unsigned char back;

	return write(to, &byte, 1) == 1 && read(from, &back, 1) == 1 &&
	       back == (byte ^ 0x55);
}

/* One byte there and back, n times; the other side changes it. Once before
   and once behind that, for the same reasons as in the ring. */
static void there_and_back(struct run *run, unsigned int marker, uint64_t n,
			   int ask[2], int answer[2])
{
	pid_t pid = fork();

	NEED(pid >= 0, "fork");
	if (pid == 0)
		echo(ask[0], answer[1], n + 2);
	bool ok = ask_once(ask[1], answer[0], 0);
	mark(marker);
	for (uint64_t i = 0; ok && i < n; i++)
		ok = ask_once(ask[1], answer[0],
			      (unsigned char)(run->seed + i));
	MARK_END();
	NEED(ok && ask_once(ask[1], answer[0], 0), "there and back");
	await(1);
}

void row_pipe(struct run *run, unsigned int marker, uint64_t n)
{
	int ask[2], answer[2];

	NEED(!pipe(ask) && !pipe(answer), "pipe");
	there_and_back(run, marker, n, ask, answer);
	NEED(!close(ask[0]) && !close(ask[1]) && !close(answer[0]) &&
		     !close(answer[1]),
	     "pipe");
}

void row_unix(struct run *run, unsigned int marker, uint64_t n)
{
	int both[2];

	NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, both), "socketpair");

	int ask[2] = { both[0], both[1] }, answer[2] = { both[1], both[0] };

	there_and_back(run, marker, n, ask, answer);
	NEED(!close(both[0]) && !close(both[1]), "socketpair");
}
