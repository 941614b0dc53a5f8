/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations, each done on real files and on the model. What it returns
 * and what anybody can see afterwards has to be the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "run.h"

static void do_write(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	size_t rounds = below(run, 30) + 1;

	run->doing = "write";
	opened->content->modified = 0;
	/* Several of a size, as programs write. */
	for (size_t count = some_count(run); rounds; rounds--) {
		/* As file systems take it. */
		int64_t before = now(CLOCK_REALTIME_COARSE);
		ssize_t done;

		if (!has_room(opened, count))
			return;
		fill(run, count);
		done = write(run->fds[at], run->data, count);
		opened_write(opened, run->data, count);
		if (rounds == 1)
			wrote(run, at, done, count, before);
		else if (done < 0 || (size_t)done != count)
			WRONG(run, "%zd of %zu bytes", done, count);
	}
}

static void do_writev(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	size_t first = below(run, 300), second = below(run, 300) + 1;
	const struct iovec parts[] = { { run->data, first },
				       { run->data + first, second } };
	/* As file systems take it. */
	int64_t before = now(CLOCK_REALTIME_COARSE);

	run->doing = "writev";
	if (!has_room(opened, first + second))
		return;
	fill(run, first + second);
	opened_write(opened, run->data, first + second);
	wrote(run, at, writev(run->fds[at], parts, 2), first + second, before);
}

static void do_pwrite(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	size_t count = some_count(run);
	size_t where = below(run, opened->content->size + 3000);
	/* As file systems take it. */
	int64_t before = now(CLOCK_REALTIME_COARSE);

	run->doing = "pwrite";
	/* Linux appends with O_APPEND, whatever the place. */
	if (opened->append)
		where = opened->content->size;
	if (where + count > MODEL_MAX)
		return;
	fill(run, count);
	content_write(opened->content, where, run->data, count);
	wrote(run, at, pwrite(run->fds[at], run->data, count, (off_t)where),
	      count, before);
}

static void do_read(struct run *run, int at, bool positioned)
{
	struct opened *opened = run->model.opened[at];
	size_t count = some_count(run);
	size_t where = positioned ? below(run, opened->content->size + 10) :
				    opened->position;
	size_t want = content_have(opened->content, where, count);
	ssize_t done;

	run->doing = positioned ? "pread" : "read";
	done = positioned ?
		       pread(run->fds[at], run->data, count, (off_t)where) :
		       read(run->fds[at], run->data, count);
	if (done < 0 || (size_t)done != want)
		WRONG(run, "%zd bytes, want %zu", done, want);
	check_bytes(run, opened->content, where, run->data, want);
	if (!positioned)
		opened->position += want;
}

static void do_seek(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	size_t size = opened->content->size;
	off_t got;

	run->doing = "lseek";
	switch (below(run, 5)) {
	case 0:
		opened->position = below(run, size + 500);
		got = lseek(run->fds[at], (off_t)opened->position, SEEK_SET);
		break;
	case 1:
		/* The last byte was written or is a hole up to the end. */
		if (!size)
			return;
		got = lseek(run->fds[at], (off_t)size - 1, SEEK_HOLE);
		if (got != (off_t)size && got != (off_t)size - 1)
			WRONG(run, "hole at %lld of %zu", (long long)got, size);
		opened->position = (size_t)got;
		break;
	default:
		opened->position = size;
		got = lseek(run->fds[at], 0, SEEK_END);
		break;
	}
	if (got < 0 || (size_t)got != opened->position)
		WRONG(run, "%lld, want %zu", (long long)got, opened->position);
}

static void do_resize(struct run *run, int at)
{
	struct content *content = run->model.opened[at]->content;
	size_t size = below(run, 3) ? below(run, content->size + 1) :
				      below(run, content->size + 5000);

	run->doing = "ftruncate";
	if (size > MODEL_MAX)
		return;
	if (ftruncate(run->fds[at], (off_t)size))
		WRONG(run, "%s", strerror(errno));
	content_resize(content, size);
	content->modified = 0;
}

static void do_punch(struct run *run, int at)
{
	struct content *content = run->model.opened[at]->content;
	size_t where = below(run, content->size + 1);
	size_t count = below(run, 9000) + 1;

	run->doing = "fallocate";
	if (fallocate(run->fds[at], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)where, (off_t)count))
		WRONG(run, "%s", strerror(errno));
	content_zero(content, where, count);
	content->modified = 0;
}

static void do_map(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	struct content *content = opened->content;
	unsigned char *map;
	size_t count = below(run, 200) + 1;

	run->doing = "mmap";
	if (!content->size || opened->append)
		return;
	map = mmap(NULL, content->size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   run->fds[at], 0);
	if (map == MAP_FAILED)
		WRONG(run, "%s", strerror(errno));
	check_bytes(run, content, 0, map, content->size);
	/* Written while it is mapped, and through the map. */
	fill(run, count);
	count = content_have(content, opened->position, count);
	if (count && write(run->fds[at], run->data, count) != (ssize_t)count)
		WRONG(run, "write: %s", strerror(errno));
	if (count)
		opened_write(opened, run->data, count);
	check_bytes(run, content, 0, map, content->size);
	map[content->size - 1] = content->bytes[content->size - 1] = 'm';
	munmap(map, content->size);
	content->modified = 0;
}

static void do_sync(struct run *run, int at)
{
	int failed;

	run->doing = "fsync";
	switch (below(run, 8)) {
	case 0:
		failed = syncfs(run->fds[at]);
		break;
	case 1:
		failed = sync_file_range(run->fds[at], 0, 0,
					 SYNC_FILE_RANGE_WRITE);
		break;
	case 2:
	case 3:
		failed = fdatasync(run->fds[at]);
		break;
	default:
		failed = fsync(run->fds[at]);
		break;
	}
	if (failed)
		WRONG(run, "%s", strerror(errno));
}

/* From a file to another one within the kernel. */
static void do_copy(struct run *run, int at)
{
	struct opened *to = run->model.opened[at];
	int other = some_descriptor(run);
	struct opened *from = run->model.opened[other];
	size_t count = some_count(run);
	size_t where = below(run, from->content->size + 1);
	size_t want = content_have(from->content, where, count);
	off_t offset = (off_t)where;
	ssize_t done;

	run->doing = "sendfile";
	if (from->content == to->content || to->append || !has_room(to, want))
		return;
	if (below(run, 2)) {
		done = sendfile(run->fds[at], run->fds[other], &offset, count);
	} else {
		run->doing = "copy_file_range";
		done = copy_file_range(run->fds[other], &offset, run->fds[at],
				       NULL, count, 0);
	}
	if (done < 0 || (size_t)done != want)
		WRONG(run, "%zd of %zu bytes: %s", done, want, strerror(errno));
	opened_write(to, from->content->bytes + where, want);
	to->content->modified = 0;
}

/* A child writes through what it inherits, and ends in several ways. */
static void do_fork(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	size_t count = below(run, 60) + 1;
	bool killed = below(run, 2);
	pid_t child;
	int status;

	run->doing = "fork";
	if (!has_room(opened, count))
		return;
	fill(run, count);
	child = fork();
	if (child == 0) {
		bool ok =
			write(run->fds[at], run->data, count) == (ssize_t)count;

		if (ok && killed)
			raise(SIGKILL);
		_exit(!ok);
	}
	if (child < 0 || waitpid(child, &status, 0) != child ||
	    (killed ? !WIFSIGNALED(status) : status != 0))
		WRONG(run, "the child did not end as it should");
	opened_write(opened, run->data, count);
	opened->content->modified = 0;
}

static void do_direct(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	struct content *content = opened->content;
	int flags = fcntl(run->fds[at], F_GETFL);
	size_t where = below(run, content->size / BLOCK + 2) * BLOCK;
	unsigned char *block;
	ssize_t done;

	run->doing = "O_DIRECT";
	/* tmpfs has none. */
	if (opened->append || where + BLOCK > MODEL_MAX ||
	    fcntl(run->fds[at], F_SETFL, flags | O_DIRECT))
		return;
	if (posix_memalign((void **)&block, BLOCK, BLOCK))
		fail("no memory");
	if (below(run, 2)) {
		fill(run, BLOCK);
		memcpy(block, run->data, BLOCK);
		done = pwrite(run->fds[at], block, BLOCK, (off_t)where);
		content_write(content, where, block, BLOCK);
		if (done != BLOCK)
			WRONG(run, "pwrite: %zd, %s", done, strerror(errno));
		content->modified = 0;
	} else {
		size_t want = content_have(content, where, BLOCK);

		done = pread(run->fds[at], block, BLOCK, (off_t)where);
		if (done < 0 || (size_t)done != want)
			WRONG(run, "pread: %zd of %zu", done, want);
		check_bytes(run, content, where, block, want);
	}
	if (fcntl(run->fds[at], F_SETFL, flags))
		WRONG(run, "fcntl: %s", strerror(errno));
	free(block);
}

static void do_append(struct run *run, int at)
{
	struct opened *opened = run->model.opened[at];
	int flags = fcntl(run->fds[at], F_GETFL);

	run->doing = "fcntl";
	if (fcntl(run->fds[at], F_SETFL, flags ^ O_APPEND))
		WRONG(run, "%s", strerror(errno));
	opened->append = !opened->append;
}

static void do_close(struct run *run, int at)
{
	run->doing = "close";
	if (close(run->fds[at]))
		WRONG(run, "%s", strerror(errno));
	/* Contents are kept: another descriptor may have the unlinked file. */
	if (--run->model.opened[at]->users == 0)
		free(run->model.opened[at]);
	run->model.opened[at] = NULL;
}

static void do_open(struct run *run)
{
	static const int flags[] = { 0,        0,       0,      O_APPEND,
				     O_APPEND, O_DSYNC, O_SYNC, O_TRUNC };
	unsigned int file = (unsigned int)below(run, MODEL_FILES);
	int chosen = flags[below(run, sizeof(flags) / sizeof(*flags))];
	struct content **content = &run->model.named[file];
	struct opened *opened;
	int at = 0, other = some_descriptor(run);

	run->doing = "open";
	while (at < MODEL_DESCRIPTORS && run->model.opened[at])
		at++;
	if (at == MODEL_DESCRIPTORS)
		return;
	if (other >= 0 && !below(run, 4)) {
		run->fds[at] = dup(run->fds[other]);
		run->model.opened[at] = run->model.opened[other];
		run->model.opened[at]->users++;
		return;
	}
	run->fds[at] = open(name_of(run, file),
			    O_RDWR | O_CREAT | O_CLOEXEC | chosen, 0600);
	opened = calloc(1, sizeof(*opened));
	if (run->fds[at] < 0 || !opened)
		WRONG(run, "%s", strerror(errno));
	if (!*content)
		*content = content_new();
	if (chosen & O_TRUNC) {
		content_resize(*content, 0);
		(*content)->modified = 0;
	}
	opened->content = *content;
	opened->append = chosen & O_APPEND;
	opened->users = 1;
	run->model.opened[at] = opened;
}

/* Names move and go; who has the file open keeps it. */
static void do_name(struct run *run)
{
	unsigned int file = (unsigned int)below(run, MODEL_FILES);
	unsigned int other = (unsigned int)below(run, MODEL_FILES);
	char path[4096];

	run->doing = "rename";
	if (!run->model.named[file])
		return;
	snprintf(path, sizeof(path), "%s", name_of(run, file));
	if (file == other || below(run, 3) == 0) {
		run->doing = "unlink";
		if (unlink(path))
			WRONG(run, "%s", strerror(errno));
	} else {
		if (rename(path, name_of(run, other)))
			WRONG(run, "%s", strerror(errno));
		run->model.named[other] = run->model.named[file];
	}
	run->model.named[file] = NULL;
}

static void step(struct run *run)
{
	int at = some_descriptor(run);
	size_t what = below(run, 100);

	if (at < 0 || what < 5)
		do_open(run);
	else if (what < 55)
		do_write(run, at);
	else if (what < 58)
		do_writev(run, at);
	else if (what < 63)
		do_pwrite(run, at);
	else if (what < 68)
		do_read(run, at, what < 66);
	else if (what < 74)
		do_seek(run, at);
	else if (what < 77)
		do_resize(run, at);
	else if (what < 79)
		do_punch(run, at);
	else if (what < 81)
		do_map(run, at);
	else if (what < 84)
		do_sync(run, at);
	else if (what < 87)
		do_copy(run, at);
	else if (what < 90)
		do_fork(run, at);
	else if (what < 93)
		do_direct(run, at);
	else if (what < 94)
		do_append(run, at);
	else if (what < 98)
		do_close(run, at);
	else if (what < 99)
		do_name(run);
}

/*
 * What is looked at is chosen as well: a look at everything after each step
 * would leave no bytes waiting.
 */
static void look(struct run *run)
{
	int at = some_descriptor(run);
	unsigned int file = (unsigned int)below(run, MODEL_FILES);

	if (at >= 0 && !below(run, 3)) {
		check_position(run, at);
		check_size(run, at);
	}
	if (run->model.named[file] && !below(run, 10))
		check_content(run, file);
}

void run_random(const struct options *options)
{
	struct run state = {
		.options = options,
		.random = options->seed * 2654435761u + 1,
	};
	struct run *run = &state;

	for (unsigned int i = 0; i < MODEL_FILES; i++)
		unlink(name_of(run, i));
	for (run->step = 0; run->step < options->steps; run->step++) {
		step(run);
		look(run);
	}
	for (int at = 0; at < MODEL_DESCRIPTORS; at++) {
		if (run->model.opened[at])
			do_close(run, at);
	}
	run->doing = "the end";
	for (unsigned int i = 0; i < MODEL_FILES; i++) {
		if (run->model.named[i]) {
			check_content(run, i);
			unlink(name_of(run, i));
		}
	}
}
