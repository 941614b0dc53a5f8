/*
 * A program whose behaviour towards the kernel is known: each mode does one
 * thing a stated number of times, and says on standard output what it did.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		die("clock_gettime");
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_ns(long ns)
{
	struct timespec span = { ns / 1000000000, ns % 1000000000 };

	while (nanosleep(&span, &span) && errno == EINTR)
		;
}

/* Works for so long of its own CPU time. */
static void spin(uint64_t ns)
{
	uint64_t end = nanoseconds(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void on_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/* count getppid calls: nothing but the call. */
static int calls(long count)
{
	for (long i = 0; i < count; i++)
		syscall(SYS_getppid);
	printf("{\"getppid\":%ld}\n", count);
	return 0;
}

/*
 * One read of pages pages into memory that nobody touched: each page is one
 * fault inside the read.
 */
static int faults(long pages)
{
	size_t bytes = (size_t)pages * 4096;
	char *target;
	int file = open("/tmp/faults", O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (file < 0 || ftruncate(file, (off_t)bytes))
		die("/tmp/faults");
	/* The file's pages exist before, so that only the target's fault. */
	for (long i = 0; i < pages; i++)
		if (pwrite(file, "x", 1, i * 4096) != 1)
			die("pwrite");
	target = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (target == MAP_FAILED || madvise(target, bytes, MADV_NOHUGEPAGE))
		die("mmap");
	if (read(file, target, bytes) != (ssize_t)bytes)
		die("read");
	printf("{\"faults\":%ld,\"reads\":1,\"pwrite64\":%ld}\n", pages, pages);
	return 0;
}

/* A socket that is sent count packets by a child, pause apart. */
static int packets(long count)
{
	const long between = 20 * 1000 * 1000;
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int in = socket(AF_INET, SOCK_DGRAM, 0);
	int out = socket(AF_INET, SOCK_DGRAM, 0);
	uint64_t waited = 0;
	pid_t child;
	char byte;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (in < 0 || out < 0 ||
	    bind(in, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockname(in, (struct sockaddr *)&address, &length))
		die("socket");
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		for (long i = 0; i < count; i++) {
			pause_ns(between);
			if (sendto(out, "x", 1, 0, (struct sockaddr *)&address,
				   sizeof(address)) != 1)
				die("sendto");
		}
		_exit(0);
	}
	for (long i = 0; i < count; i++) {
		uint64_t began = nanoseconds(CLOCK_MONOTONIC);

		if (recvfrom(in, &byte, 1, 0, NULL, NULL) != 1)
			die("recvfrom");
		waited += nanoseconds(CLOCK_MONOTONIC) - began;
	}
	waitpid(child, NULL, 0);
	printf("{\"recvfrom\":%ld,\"sendto\":%ld,\"waited_ns\":%llu}\n", count,
	       count, (unsigned long long)waited);
	return 0;
}

/* A pipe that a child of this job fills count times, pause apart. */
static int pipes(long count)
{
	const long between = 20 * 1000 * 1000;
	int ends[2];
	pid_t child;
	char byte;

	if (pipe(ends))
		die("pipe");
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		for (long i = 0; i < count; i++) {
			pause_ns(between);
			if (write(ends[1], "x", 1) != 1)
				die("write");
		}
		_exit(0);
	}
	for (long i = 0; i < count; i++)
		if (read(ends[0], &byte, 1) != 1)
			die("read");
	waitpid(child, NULL, 0);
	printf("{\"read\":%ld,\"write\":%ld}\n", count, count);
	return 0;
}

/*
 * Reads of one large file into touched memory, on CPU 0, while somebody else
 * wants that CPU too. It says how long it took and how long it ran.
 */
static int preempted(long rounds)
{
	const size_t bytes = 16 << 20;
	uint64_t wall, ran;
	char *target = malloc(bytes);
	int file = open("/tmp/large", O_RDWR | O_CREAT | O_TRUNC, 0600);

	on_cpu(0);
	if (!target || file < 0)
		die("/tmp/large");
	memset(target, 'x', bytes);
	if (write(file, target, bytes) != (ssize_t)bytes)
		die("write");
	wall = nanoseconds(CLOCK_MONOTONIC);
	ran = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
	for (long i = 0; i < rounds; i++)
		if (pread(file, target, bytes, 0) != (ssize_t)bytes)
			die("pread");
	ran = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - ran;
	wall = nanoseconds(CLOCK_MONOTONIC) - wall;
	printf("{\"pread64\":%ld,\"wall_ns\":%llu,\"ran_ns\":%llu}\n", rounds,
	       (unsigned long long)wall, (unsigned long long)ran);
	return 0;
}

/* Works on a CPU in bursts, so many times; says for how long in all. */
static int neighbour(int cpu, long bursts, long busy_ms, long idle_ms)
{
	uint64_t began;

	on_cpu(cpu);
	began = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
	for (long i = 0; i < bursts; i++) {
		spin((uint64_t)busy_ms * 1000000);
		if (idle_ms)
			pause_ns(idle_ms * 1000000);
	}
	printf("{\"ran_ns\":%llu}\n",
	       (unsigned long long)(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) -
				    began));
	return 0;
}

/* Works on a CPU until so much time has passed. */
static int busy(int cpu, long ms)
{
	uint64_t began = nanoseconds(CLOCK_MONOTONIC);
	uint64_t end = began + (uint64_t)ms * 1000000;

	on_cpu(cpu);
	while (nanoseconds(CLOCK_MONOTONIC) < end)
		;
	printf("{\"wall_ns\":%llu,\"ran_ns\":%llu}\n",
	       (unsigned long long)(nanoseconds(CLOCK_MONOTONIC) - began),
	       (unsigned long long)nanoseconds(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}

/*
 * The collector has room for 16,384 files and moves those out that were idle for
 * seconds: what is made faster than that goes into a sum without names.
 */
enum { AT_ONCE = 2000 };

/* So many files of one short write each, in a folder. */
static int files(const char *folder, long count)
{
	char path[256];

	for (long i = 0; i < count; i++) {
		int file;

		snprintf(path, sizeof(path), "%s/part.%06ld.meta", folder, i);
		file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (file < 0 || write(file, "0123456789", 10) != 10 ||
		    fsync(file) || close(file))
			die(path);
		if (i % AT_ONCE == AT_ONCE - 1)
			sleep(1);
	}
	printf("{\"files\":%ld}\n", count);
	return 0;
}

/* So many short writes to one file. */
static int writes(const char *path, long count)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (file < 0)
		die(path);
	for (long i = 0; i < count; i++)
		if (pwrite(file, "01234567", 8, 0) != 8)
			die(path);
	printf("{\"writes\":%ld}\n", count);
	return close(file);
}

/*
 * Calls in a folder that are slow for a known reason: reads of a pipe that last
 * 5 to 100 ms, an open that waits for the other end, one large read among short
 * ones, and a socket that nothing comes to.
 */
static int slow(const char *folder)
{
	const long rounds = 20, unit = 5 * 1000 * 1000;
	const size_t bytes = 4 << 20;
	struct timeval limit = { 0, 40000 };
	struct sockaddr_in address = { .sin_family = AF_INET };
	uint64_t longest = 0;
	char *target = malloc(bytes), byte;
	int ends[2], file, in = socket(AF_INET, SOCK_DGRAM, 0);
	pid_t child;

	if (!target || in < 0 || chdir(folder) || mkfifo("fifo", 0600) ||
	    pipe(ends))
		die(folder);
	memset(target, 'x', bytes);
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		for (long i = 0; i < rounds; i++) {
			pause_ns((i * 7 % rounds + 1) * unit);
			if (write(ends[1], "x", 1) != 1)
				die("write");
		}
		pause_ns(6 * unit);
		_exit(open("fifo", O_WRONLY) < 0);
	}
	for (long i = 0; i < rounds; i++) {
		if (i * 7 % rounds == rounds - 1)
			longest = nanoseconds(CLOCK_REALTIME);
		if (read(ends[0], &byte, 1) != 1)
			die("read");
	}
	if (open("fifo", O_RDONLY) < 0)
		die("fifo");
	waitpid(child, NULL, 0);
	file = open("large", O_RDWR | O_CREAT, 0600);
	if (file < 0 || write(file, target, bytes) != (ssize_t)bytes)
		die("large");
	for (long i = 0; i < 100; i++)
		if (pread(file, target, i == 50 ? bytes : 1, 0) < 1)
			die("pread");
	close(file);
	if (bind(in, (struct sockaddr *)&address, sizeof(address)) ||
	    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
	    recv(in, &byte, 1, 0) != -1)
		die("recv");
	printf("{\"pid\":%d,\"longest_at\":%llu}\n", getpid(),
	       (unsigned long long)longest);
	return 0;
}

static int opened(const char *name)
{
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (file < 0)
		die(name);
	return file;
}

static void moved(const char *call, ssize_t bytes, ssize_t wanted)
{
	if (bytes != wanted) {
		fprintf(stderr, "%s: %zd for %zd\n", call, bytes, wanted);
		die(call);
	}
}

/*
 * One file of 64 KiB, copied in a folder by each call that needs no memory of
 * the program, twice: by the file's own position and by a given one. Each copy
 * ends with a call at the end of the file. Then reads and writes of vectors at
 * both kinds of position, 100 bytes each.
 */
static int copies(const char *folder)
{
	enum { WHOLE = 64 << 10, HALF = WHOLE / 2, PIECE = 100 };
	static char content[WHOLE];
	struct iovec vector = { content, PIECE };
	off_t from = 0, to = HALF;
	int ends[2], source, target;

	if (chdir(folder) || pipe(ends))
		die(folder);
	source = opened("source");
	moved("write", write(source, content, WHOLE), WHOLE);

	target = opened("sent");
	moved("sendfile", sendfile(target, source, &from, HALF), HALF);
	if (lseek(source, HALF, SEEK_SET) != HALF)
		die("lseek");
	moved("sendfile", sendfile(target, source, NULL, WHOLE), HALF);
	moved("sendfile", sendfile(target, source, NULL, WHOLE), 0);

	target = opened("ranged");
	from = 0;
	moved("copy_file_range",
	      copy_file_range(source, &from, target, NULL, HALF, 0), HALF);
	moved("copy_file_range",
	      copy_file_range(source, &from, target, &to, WHOLE, 0), HALF);
	moved("copy_file_range",
	      copy_file_range(source, &from, target, &to, WHOLE, 0), 0);

	target = opened("spliced");
	from = 0;
	moved("splice", splice(source, &from, ends[1], NULL, HALF, 0), HALF);
	moved("splice", splice(ends[0], NULL, target, NULL, HALF, 0), HALF);

	target = opened("vectors");
	moved("pwritev2", pwritev2(target, &vector, 1, -1, 0), PIECE);
	moved("pwritev2", pwritev2(target, &vector, 1, PIECE, 0), PIECE);
	moved("preadv2", preadv2(target, &vector, 1, 0, 0), PIECE);
	moved("preadv2", preadv2(target, &vector, 1, -1, 0), PIECE);
	moved("preadv2", preadv2(target, &vector, 1, -1, 0), 0);
	printf("{\"whole\":%d,\"piece\":%d}\n", WHOLE, PIECE);
	return 0;
}

/* So many processes, each with one getppid of its own. */
static int processes(long count)
{
	for (long i = 0; i < count; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (child == 0) {
			syscall(SYS_getppid);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	printf("{\"getppid\":%ld}\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	long n = argc > 2 ? atol(argv[2]) : 0;

	if (!strcmp(mode, "calls"))
		return calls(n);
	if (!strcmp(mode, "faults"))
		return faults(n);
	if (!strcmp(mode, "packets"))
		return packets(n);
	if (!strcmp(mode, "pipes"))
		return pipes(n);
	if (!strcmp(mode, "preempted"))
		return preempted(n);
	if (!strcmp(mode, "neighbour") && argc == 6)
		return neighbour((int)n, atol(argv[3]), atol(argv[4]),
				 atol(argv[5]));
	if (!strcmp(mode, "busy") && argc == 4)
		return busy((int)n, atol(argv[3]));
	if (!strcmp(mode, "files") && argc == 4)
		return files(argv[3], n);
	if (!strcmp(mode, "writes") && argc == 4)
		return writes(argv[3], n);
	if (!strcmp(mode, "slow"))
		return slow(argv[2]);
	if (!strcmp(mode, "copies"))
		return copies(argv[2]);
	if (!strcmp(mode, "processes"))
		return processes(n);
	fprintf(stderr, "known: mode?\n");
	return 2;
}
