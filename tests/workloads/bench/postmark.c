/*
 * postmark: a mail server's files. --processes processes, 1,000 files of 100
 * bytes and --size transactions among them all; three regions: the files are
 * created, the transactions done, what is left deleted.
 */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"
#include "pool.h"
#include "run.h"

enum { FILES = 1000, PHASES = 3 };

struct worker {
	pid_t pid;
	int go[2];   /* one byte begins the next phase */
	int done[2]; /* one byte ends it */
};

static void transact(struct pool *pool, uint64_t times)
{
	while (times-- > 0)
		pool_transact(pool);
}

static void work(struct run *run, struct worker *me, unsigned int number,
		 unsigned int files, uint64_t transactions)
{
	struct pool pool;
	char byte;

	pool_open(&pool, run->dir, number, files, run->seed);
	for (int phase = 0; phase < PHASES; phase++) {
		if (read(me->go[0], &byte, 1) != 1)
			run_fail("go");
		if (phase == 0)
			pool_fill(&pool);
		else if (phase == 1)
			transact(&pool, transactions);
		else
			pool_empty(&pool);
		if (write(me->done[1], "d", 1) != 1)
			run_fail("done");
	}
	pool_close(&pool);
	_exit(0);
}

static bool phase(struct worker *workers, unsigned int n)
{
	char byte;

	for (unsigned int i = 0; i < n; i++) {
		if (write(workers[i].go[1], "g", 1) != 1)
			return false;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (read(workers[i].done[0], &byte, 1) != 1)
			return false;
	}
	return true;
}

static void hire(struct run *run, struct worker *worker, unsigned int number,
		 unsigned int files, uint64_t transactions)
{
	if (pipe(worker->go) || pipe(worker->done))
		run_fail("pipe");
	worker->pid = fork();
	if (worker->pid < 0)
		run_fail("fork");
	if (worker->pid == 0)
		work(run, worker, number, files, transactions);
	/* Only the worker may hold these, or its end would go unseen. */
	if (close(worker->go[0]) || close(worker->done[1]))
		run_fail("pipe");
}

int main(int argc, char **argv)
{
	static const char *const names[PHASES] = { "create", "transaction",
						   "delete" };
	struct worker workers[256];
	struct run run;

	run_begin(&run, argc, argv);

	unsigned int files = FILES / run.processes + 1;
	uint64_t each = run.size / run.processes + 1;
	const uint64_t operations[PHASES] = { files, each, files };

	for (unsigned int i = 0; i < run.processes; i++)
		hire(&run, &workers[i], i, files, each);
	for (unsigned int i = 0; i < PHASES; i++) {
		mark(run.first + i);
		bool ok = phase(workers, run.processes);
		MARK_END();
		if (!ok)
			run_wrong("%s: a process ended early", names[i]);
		run_region(&run, run.first + i, names[i],
			   operations[i] * run.processes);
	}
	for (unsigned int i = 0; i < run.processes; i++) {
		int status;

		if (waitpid(workers[i].pid, &status, 0) < 0)
			run_fail("wait");
		if (status)
			run_wrong("process %u ended with status %d", i, status);
	}
	return run_end(&run);
}
