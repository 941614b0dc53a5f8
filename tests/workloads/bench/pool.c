#include "pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

static const char *path_of(const struct pool *pool, unsigned int i)
{
	static char path[4200];

	snprintf(path, sizeof(path), "%s/%u", pool->dir, i);
	return path;
}

static uint64_t seed_of(const struct pool *pool, unsigned int i)
{
	return pool->seed ^ (uint64_t)i << 32;
}

/* Appends to file i what its series has at that place. */
static void extend(struct pool *pool, unsigned int i, int flags)
{
	static unsigned char text[POOL_LONGEST];
	uint32_t length = pool->lengths[i];
	int fd = open(path_of(pool, i), O_WRONLY | flags, 0600);

	if (fd < 0)
		run_fail(path_of(pool, i));
	run_fill(text, length + POOL_SIZE, seed_of(pool, i));
	if (write(fd, text + length, POOL_SIZE) != POOL_SIZE || close(fd))
		run_fail(path_of(pool, i));
	pool->lengths[i] = length + POOL_SIZE;
}

static void create(struct pool *pool, unsigned int i)
{
	extend(pool, i, O_CREAT | O_EXCL);
	pool->files++;
}

static void read_back(struct pool *pool, unsigned int i)
{
	static unsigned char text[POOL_LONGEST];
	int fd = open(path_of(pool, i), O_RDONLY);

	if (fd < 0)
		run_fail(path_of(pool, i));
	if (read(fd, text, sizeof(text)) != (ssize_t)pool->lengths[i])
		run_wrong("%s has not %u bytes", path_of(pool, i),
			  pool->lengths[i]);
	run_compare("pool", text, pool->lengths[i], seed_of(pool, i));
	if (close(fd))
		run_fail(path_of(pool, i));
}

static void delete (struct pool *pool, unsigned int i)
{
	if (unlink(path_of(pool, i)))
		run_fail(path_of(pool, i));
	pool->lengths[i] = 0;
	pool->files--;
}

/* A file that exists, or one that does not, from a random place on. */
static unsigned int pick(struct pool *pool, int exists)
{
	unsigned int i = (unsigned int)(run_random(&pool->chance) % pool->room);

	while ((pool->lengths[i] != 0) != exists)
		i = (i + 1) % pool->room;
	return i;
}

void pool_open(struct pool *pool, const char *dir, unsigned int number,
	       unsigned int files, uint64_t seed)
{
	*pool = (struct pool){
		.room = files * 2,
		.seed = seed ^ (uint64_t)number << 48,
	};
	pool->chance = pool->seed;
	pool->lengths = calloc(pool->room, sizeof(*pool->lengths));
	if (!pool->lengths)
		run_fail("pool");
	if (snprintf(pool->dir, sizeof(pool->dir), "%s/postmark-%u", dir,
		     number) >= (int)sizeof(pool->dir))
		run_wrong("the folder's name is too long");
	if (mkdir(pool->dir, 0700))
		run_fail(pool->dir);
}

void pool_fill(struct pool *pool)
{
	for (unsigned int i = 0; i < pool->room / 2; i++)
		create(pool, i);
}

/* As in Postmark: read or append, and create or delete. */
void pool_transact(struct pool *pool)
{
	uint64_t chance = run_random(&pool->chance);
	unsigned int i = pick(pool, 1);

	if (chance & 1 || pool->lengths[i] + POOL_SIZE > POOL_LONGEST)
		read_back(pool, i);
	else
		extend(pool, i, O_APPEND);
	if ((chance & 2 || pool->files < 2) && pool->files < pool->room)
		create(pool, pick(pool, 0));
	else
		delete (pool, pick(pool, 1));
}

void pool_empty(struct pool *pool)
{
	for (unsigned int i = 0; i < pool->room; i++) {
		if (pool->lengths[i])
			delete (pool, i);
	}
}

void pool_close(struct pool *pool)
{
	/* Fails if there is a file that nobody knows of. */
	if (rmdir(pool->dir))
		run_fail(pool->dir);
	free(pool->lengths);
}
